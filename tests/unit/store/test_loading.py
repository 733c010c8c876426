"""Loading of events: each exactly once, whatever is killed and in whichever order files are read."""

import asyncio
import os
import random
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, cast

import pytest
from sqlalchemy import func, select

from aworld_train.episode.figures import EpisodeFigures
from aworld_train.store import event_files as event_files_module
from aworld_train.store import loading, tables
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.event_files import event_files
from aworld_train.store.events import TrainedRow
from aworld_train.store.loading import StoreLoader, close_running, load, supersede
from aworld_train.store.reading import Store
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import StoreLocation, store_location
from tests import warm
from tests.postgres_server import PostgresServer
from tests.stored_runs import make_stored_run, record_episode, row_mask, task_row

ROUNDS = 8


def recorder(place: StoreLocation, keep: str = "all", *patterns: str) -> StoreRecorder:
    return StoreRecorder(place.folder.parent, parse_keep(keep), Redactor(patterns))


def record(recorder: StoreRecorder, attempt: int, step: int = 1, phase: str = "train", say: str = "") -> str:
    row = task_row(0, 2, 3, say)
    return record_episode(
        recorder, random.Random(attempt), recorder.task(row), row, 2, 3, step, phase, 0, attempt, say
    )


def statuses(place: StoreLocation) -> dict[str, int]:
    with Store(place) as store:
        counts: dict[str, int] = {}
        for head in store.episodes(superseded=True):
            counts[head.status] = counts.get(head.status, 0) + 1
        return counts


def test_loading_again_enters_nothing_twice(place: StoreLocation) -> None:
    writer = recorder(place)
    record(writer, 0)
    writer.close()
    copy = place.folder / "copy"
    shutil.copytree(place.events, copy)
    database = Database(place)
    assert load(database) > 0
    assert load(database) == 0
    load(database, final=True)
    assert not event_files(place.events)
    shutil.copytree(copy, place.events, dirs_exist_ok=True)
    load(database, final=True)
    database.close()
    assert statuses(place) == {"ended": 1}


def test_of_two_processes_that_load_an_ended_run_one_finds_that_its_files_are_gone(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = recorder(place)
    record(writer, 0)
    writer.close()
    listed = event_files(place.events)
    databases = Database(place), Database(place)
    assert load(databases[0], final=True) > 0
    assert listed and event_files(place.events) == []
    monkeypatch.setattr(loading, "event_files", lambda _: listed)
    assert load(databases[1], final=True) == 0
    for database in databases:
        database.close()
    assert statuses(place) == {"ended": 1}


@pytest.mark.parametrize("max_bytes", [1, 1 << 20], ids=["many files", "one file"])
def test_what_the_trainer_says_waits_for_what_the_players_say(
    place: StoreLocation, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    monkeypatch.setattr(event_files_module, "MAX_FILE_BYTES", max_bytes)
    trainer, player = recorder(place), recorder(place)
    database = Database(place)
    trainer.trained(1, [TrainedRow("uid1-0_0_0", 0.5, 10), TrainedRow("uid1-0_1_0", -0.5, 5)])
    asyncio.run(trainer.written())
    trainer.dropped(["uid1-9"], "too small")
    trainer.close()
    assert load(database) == 0
    record(player, 0)
    record(player, 1)
    asyncio.run(player.written())
    load(database)
    with Store(place) as store:
        assert [head.advantage for head in store.episodes(sort="advantage")] == [-0.5, 0.5]
        episode, number = store.trained_row(1, 1)
        assert (episode.rows[number].advantage, episode.head.attempt) == (-0.5, 1)
    # The group that nobody played holds nothing up at the end.
    player.close()
    load(database, final=True)
    assert not event_files(place.events)
    database.close()


@pytest.mark.parametrize(
    ("rows", "advantage"),
    [
        ([(1.0, 10), (-1.0, 30)], -0.5),
        ([(1.0, 10), (-1.0, 0)], 1.0),
        ([(None, 10), (0.25, 30)], 0.25),
        ([(1.0, 0)], None),
    ],
)
def test_the_advantage_of_an_episode_is_the_mean_over_the_tokens_of_its_rows(
    place: StoreLocation, rows: list[tuple[float | None, int]], advantage: float | None
) -> None:
    writer = recorder(place)
    record(writer, 0)
    writer.trained(
        1, [TrainedRow(f"uid1-0_0_{number}", mean, count) for number, (mean, count) in enumerate(rows)]
    )
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        (head,) = store.episodes()
        assert (head.advantage, head.trained_step) == (advantage, 1)


@pytest.mark.parametrize(
    ("treatments", "trained"),
    [
        (["dropped", "trained"], 1),
        (["trained", "dropped"], 0),
        (["trained", "masked"], 1),
        (["trained", "running"], 0),
        (["", "dropped"], 0),
    ],
)
def test_of_an_episode_that_was_played_again_the_last_that_is_used_was_trained_on(
    place: StoreLocation, treatments: list[str], trained: int
) -> None:
    writer = recorder(place)
    task = writer.task(task_row(0, 2, 3))
    for attempt, treatment in enumerate(treatments):
        episode = uuid.uuid4().hex
        writer.begin(episode, task, step=1, phase="train", attempt=attempt, key="uid_0")
        if treatment != "running":
            writer.end(episode, EpisodeFigures(treatment=treatment or None), None)
    writer.trained(1, [TrainedRow("uid_0_0", 0.5, 10)])
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert [head.attempt for head in store.episodes("trained_step=1")] == [trained]


def test_groups_that_are_dropped_have_the_reason_where_an_episode_has_none(place: StoreLocation) -> None:
    writer = recorder(place)
    record(writer, 0)
    episode = uuid.uuid4().hex
    writer.begin(episode, writer.task(task_row(0, 2, 3)), step=1, phase="train", attempt=3, key="uid1-0_3")
    writer.end(episode, EpisodeFigures(treatment="dropped", cause="too slow"), None)
    writer.dropped(["uid1-0"], "too few")
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        figures = [head.figures for head in store.episodes()]
    assert sorted(str(each.cause) for each in figures) == ["too few", "too slow"]
    assert {each.treatment for each in figures} == {"dropped"}


def test_a_group_is_dropped_once_its_episodes_have_ended(place: StoreLocation) -> None:
    writer, trainer = recorder(place), recorder(place)
    episode = uuid.uuid4().hex
    writer.begin(episode, writer.task(task_row(0, 2, 3)), step=1, phase="train", attempt=0, key="uid1-0_0")
    trainer.dropped(["uid1-0"], "too few")
    asyncio.run(writer.written())
    asyncio.run(trainer.written())
    database = Database(place)
    load(database)
    writer.end(episode, EpisodeFigures(treatment="trained"), None)
    writer.close()
    trainer.close()
    load(database)
    load(database)
    database.close()
    with Store(place) as store:
        (head,) = store.episodes()
        assert (head.figures.treatment, head.figures.cause) == ("dropped", "too few")


def test_an_episode_that_is_left_out_has_a_reason_of_its_own(place: StoreLocation) -> None:
    writer = recorder(place)
    for attempt in (0, 1, 10):
        record(writer, attempt)
    writer.dropped(["uid1-0_1"], "too old")
    writer.dropped(["uid1-0"], "too few")
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        reasons = {head.attempt: head.figures.cause for head in store.episodes()}
    assert reasons == {0: "too few", 1: "too old", 10: "not over after 5 seconds"}


def test_rows_of_a_step_s_later_updates_come_after_the_others(place: StoreLocation) -> None:
    writer = recorder(place)
    for attempt in (0, 1):
        record(writer, attempt)
        writer.trained(1, [TrainedRow(f"uid1-0_{attempt}_0", 0.5, 10)], before=attempt)
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert [store.trained_row(1, position)[0].head.attempt for position in (0, 1)] == [0, 1]


def test_episodes_of_a_dead_process_are_closed(place: StoreLocation) -> None:
    writer = recorder(place)
    task = writer.task(task_row(0, 2, 3))
    writer.begin("abc", task, step=1, phase="train", attempt=0, key="uid_0")
    writer.close()
    database = Database(place)
    load(database, final=True)
    assert close_running(database) == 1
    database.close()
    with Store(place) as store:
        (head,) = store.episodes()
        assert (head.status, head.figures.treatment) == ("lost", "dropped")
        assert store.episode("abc").content is None


def test_a_resumed_run_sets_aside_what_it_plays_again(place: StoreLocation) -> None:
    writer = recorder(place)
    for attempt, (step, phase) in enumerate(
        [(0, "val"), (1, "train"), (1, "val"), (2, "train"), (3, "train")]
    ):
        record(writer, attempt, step, phase)
    writer.close()
    database = Database(place)
    load(database, final=True)
    assert supersede(database, 1, validated=True) == 2
    assert supersede(database, 1, validated=False) == 1
    assert supersede(database, 0, validated=False) == 2
    assert supersede(database, 0, validated=False) == 0
    database.close()
    assert statuses(place) == {"superseded": 5}


def test_what_a_lost_step_had_trained_is_still_to_be_trained_and_what_is_played_again_is_set_aside(
    place: StoreLocation,
) -> None:
    writer = recorder(place)
    for attempt in (0, 1, 10):
        record(writer, attempt)
    rows = [TrainedRow(f"uid1-0_{attempt}_0", 0.5, 10) for attempt in (0, 1, 10)]
    writer.trained(1, rows[:1])
    writer.trained(3, rows[1:])
    writer.close()
    database = Database(place)
    load(database, final=True)
    assert supersede(database, 2, validated=True) == 0
    with Store(place) as store:
        assert {head.attempt: head.trained_step for head in store.episodes()} == {0: 1, 1: None, 10: None}
        (use,) = store.episode(next(head.id for head in store.episodes("attempt=1"))).rows
        assert use.trained_step is use.advantage is None
    writer = recorder(place)
    writer.replayed(["uid1-0", "uid1"])
    again = record(writer, 1)
    writer.trained(3, rows[1:2])
    writer.close()
    load(database, final=True)
    database.close()
    with Store(place) as store:
        (head,) = store.episodes()
    assert (head.id, head.status, head.trained_step) == (again, "ended", 3)
    assert statuses(place) == {"superseded": 3, "ended": 1}


def test_the_store_reads_back_what_was_recorded(place: StoreLocation) -> None:
    run = place.folder.parent
    make_stored_run(run.parent, "run", url=place.url)
    with Store(place) as store:
        assert store.count() == 64
        for head in store.episodes("phase=train and treatment=trained"):
            episode = store.episode(head.id)
            assert episode.content is not None
            assert sum(row_mask(episode.content, 0)) == head.figures.sampled_tokens
            assert episode.tools and episode.task_row["reward_model"]["ground_truth"] == head.correct_answer
        positions = {(step, row): store.trained_row(step, row) for step in (1, 2, 3) for row in range(12)}
        assert len({episode.head.id for episode, _ in positions.values()}) == 36


def test_only_failures_keep_their_content(place: StoreLocation) -> None:
    writer = recorder(place, "failures")
    ids = [record(writer, attempt) for attempt in range(4)]
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert [store.episode(each).content is not None for each in ids] == [False, False, True, True]
        assert store.count() == 4


def test_a_secret_is_nowhere_in_the_database(place: StoreLocation) -> None:
    writer = recorder(place, "all", r"key-[0-9]+")
    ids = [record(writer, attempt, say="the key-12345 \0 \ud800") for attempt in range(4)]
    writer.close()
    assert not any(b"key-12345" in file.read_bytes() for file in place.folder.rglob("*") if file.is_file())
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert store.count(search="key-12345") == 0
        assert store.count(search="[redacted]") == 4
        assert all("key-12345" not in repr(store.episode(each)) for each in ids)


_RECORD = """
import asyncio, sys, itertools
from pathlib import Path
from aworld_train.store.store_location import store_location
from tests.unit.store.test_loading import record, recorder
place = store_location(Path(sys.argv[1]))
writer = recorder(place)
for attempt in itertools.count(int(sys.argv[2])):
    record(writer, attempt)
    writer.begin(f"unfinished {attempt}", writer.task({"prompt": []}), step=1, phase="train", attempt=0, key="")
    asyncio.run(writer.written())
    print(attempt, flush=True)
"""
_LOAD = """
import sys, time
from pathlib import Path
from aworld_train.store.database import Database
from aworld_train.store.store_location import store_location
from aworld_train.store.loading import load
database = Database(store_location(Path(sys.argv[1]), url=sys.argv[2] or None))
print("loads", flush=True)
while True:
    load(database)
"""


def test_writers_and_loaders_that_are_killed_leave_whole_episodes(place: StoreLocation) -> None:
    rng = random.Random(7)
    run = str(place.folder.parent)
    written: set[int] = set()
    for number in range(ROUNDS):
        writer, printed = _started(_RECORD, run, str(number * 100_000))
        loader, loads = _started(_LOAD, run, place.url or "")
        time.sleep(rng.uniform(0, 0.3))
        for process in rng.sample([writer, loader], 2):
            process.send_signal(signal.SIGKILL)
            process.wait()
        with printed, loads:
            # The last line may be cut off.
            lines = [int(line) for line in printed if line.endswith("\n")]
            assert lines and loads.read()
        written.update(lines)
    database = Database(place)
    load(database, final=True)
    close_running(database)
    assert not event_files(place.events)
    with database.begin() as connection:
        if place.url is None:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
        count = connection.execute(
            select(func.count()).where(
                tables.episodes.c.run == place.run, tables.episodes.c.status == "running"
            )
        ).scalar_one()
    database.close()
    assert count == 0
    with Store(place) as store:
        ended = store.episodes("status=ended")
        assert written <= {head.attempt for head in ended}
        for head in ended:
            content = store.episode(head.id).content
            assert content is not None
            assert sum(row_mask(content, 0)) == head.figures.sampled_tokens


def _started(program: str, *arguments: str) -> tuple[warm.Program, IO[str]]:
    """A process that prints, and what it prints; it has printed something."""
    reading, writing = os.pipe()
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path}
    process = warm.popen("-c", program, *arguments, stdout=writing, env=environment)
    assert isinstance(process, warm.Program)
    os.close(writing)
    output = os.fdopen(reading)
    wait([output])
    return process, output


def test_a_server_that_is_away_loses_nothing(tmp_path: Path) -> None:
    server = PostgresServer()
    try:
        place = store_location(tmp_path / "run", url=server.url, make=True)
        assert place is not None
        notes: list[str] = []
        loader = StoreLoader(lambda: Database(place), notes.append, seconds=0.1)
        loader.start()
        writer = recorder(place)
        for attempt in range(10):
            record(writer, attempt)
        server.crash()
        for attempt in range(10, 20):
            record(writer, attempt)
        writer.close()
        deadline = time.monotonic() + 60
        while not notes:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert not loader.close(max_seconds=0.5)
        assert event_files(place.events)
        server.start()
        again = StoreLoader(lambda: Database(place), notes.append, seconds=0.1)
        assert again.close(max_seconds=30)
        assert statuses(place) == {"ended": 20}
        assert len(notes) == 1
    finally:
        server.close()


class Scripted:
    """Loads of a database that is none: each returns a count or fails, in this order, the last one again and again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outcomes: int | Exception, refusals: int = 0):
        self.notes: list[str] = []
        self.loads: list[bool] = []  # whether they were final
        self.calls: list[str] = []
        self._outcomes, self._refusals = outcomes, refusals
        monkeypatch.setattr(loading, "load", self._load)
        monkeypatch.setattr(loading, "close_running", lambda _: self.calls.append("close_running"))

    def _load(self, _: object, *, final: bool, refused: Callable[[str], None]) -> int:
        self.loads.append(final)
        for number in range(self._refusals):
            refused(f"refused {number}")
        outcome = self._outcomes[min(len(self.loads), len(self._outcomes)) - 1]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        self.calls.append("closed")

    def loader(self, seconds: float = 0.001) -> StoreLoader:
        database = cast("Database", self)
        return StoreLoader(
            lambda: database, self.notes.append, seconds=seconds, loaded=lambda _: self.calls.append("loaded")
        )


def test_what_keeps_episodes_out_is_told_once_and_that_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = StoreUnreachable("gone")
    database = Scripted(monkeypatch, gone, gone, 0, refusals=2)
    assert database.loader().close(max_seconds=1.0) is True
    assert database.notes == [
        loading.refusal_note("refused 0"),
        "The store's database does not answer (gone); episodes are kept in files until it does.",
        "The store's database takes episodes again.",
    ]
    assert "refused some of what was reported (refused 0)" in database.notes[0]
    assert (database.loads, database.calls) == ([True] * 3, ["close_running", "loaded", "closed"])


def test_a_database_that_fails_is_tried_as_long_as_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Scripted(monkeypatch, KeyError("odd"))
    loader = database.loader(seconds=0.25)
    assert loader.close(max_seconds=0.5) is False
    assert database.notes == [
        "Episodes cannot be entered into the store's database (KeyError: 'odd'); they are kept in files, and this is "
        "tried again."
    ]
    assert (database.loads, database.calls) == ([True] * 3, ["closed"])
    assert loader.close(max_seconds=0.0) is False and len(database.notes) == 1


def test_while_a_run_goes_on_what_is_new_is_loaded_and_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Scripted(monkeypatch, 0, 2, 0)
    loader = database.loader()
    loader.start()
    assert loader._thread.daemon, "a process that ends without closing it does not wait"
    deadline = time.monotonic() + 60
    while len(database.loads) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert database.calls == ["loaded"]
    assert loader.close(max_seconds=1.0)
    assert not loader._thread.is_alive() and set(database.loads[:-1]) == {False} and database.loads[-1]
    assert database.calls == ["loaded", "close_running", "loaded", "closed"] and database.notes == []


def test_a_load_that_is_under_way_at_the_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, proceed, events = threading.Event(), threading.Event(), list[str]()

    def load(_: object, *, final: bool, refused: object) -> int:
        events.append(f"begin {final}")
        if not final:
            begun.set()
            assert proceed.wait(60)
        events.append(f"end {final}")
        return 0

    loader = Scripted(monkeypatch).loader()
    monkeypatch.setattr(loading, "load", load)
    loader.start()
    assert begun.wait(60)
    threading.Timer(0.05, proceed.set).start()
    assert loader.close(max_seconds=1.0)
    assert events == ["begin False", "end False", "begin True", "end True"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no niceness of their own")
def test_loading_while_a_run_goes_on_computes_after_it_and_nothing_else_does(place: StoreLocation) -> None:
    seen: list[tuple[bool, int]] = []

    def loaded(database: Database) -> None:
        is_thread = threading.current_thread() is not threading.main_thread()
        seen.append((is_thread, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    own = os.getpriority(os.PRIO_PROCESS, 0)
    writer = recorder(place)
    record(writer, 0)
    loader = StoreLoader(lambda: Database(place), print, seconds=0.05, loaded=loaded)
    loader.start()
    deadline = time.monotonic() + 60
    while not seen:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    writer.close()
    assert loader.close(max_seconds=30)
    assert set(seen) == {(True, 19), (False, own)}


def test_an_event_that_is_of_no_known_episode_is_passed_over(place: StoreLocation) -> None:
    writer = recorder(place)
    writer.end("nobody", EpisodeFigures(outcome="answered"), None)
    record(writer, 0)
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    assert statuses(place) == {"ended": 1}
