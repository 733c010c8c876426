"""A run's store: loaded and exported during the run, after the episodes of an earlier attempt were entered."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from aworld_train.errors import StoreFailure, UsageError
from aworld_train.recipe.schema import StoreSection
from aworld_train.store import tables
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.loading import load
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import StoreLocation, store_location
from aworld_train.training import run_store
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.training.run_files import lock_folder
from aworld_train.training.run_store import RunStore, find_run_store, open_run_store, run_database
from tests.otlp_receiver import OtlpReceiver
from tests.stored_runs import record_episode, task_row, write_run_files

NOT_SENT = "Some spans could not be sent to store.otlp; they are sent when the run continues."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run_files(tmp_path, "one", 1)
    return tmp_path


@pytest.fixture
def notes() -> list[str]:
    return []


def play(run: Path, index: int = 0) -> None:
    """One episode, as a worker of the run reports it."""
    recorder = StoreRecorder(run, parse_keep("all"), Redactor())
    row = task_row(index, 6, 7)
    record_episode(recorder, random.Random(0), recorder.task(row), row, 6, 7, 1, "train", index, 0, "")
    recorder.close()


def stored(run: Path) -> int:
    """How many episodes are in the run's database."""
    place = store_location(run)
    if place is None:
        return 0
    database = Database(place)
    with database.begin() as connection:
        count = connection.execute(select(func.count()).select_from(tables.episodes)).scalar_one()
    database.close()
    return int(count)


def test_what_is_played_is_in_the_store_when_the_run_is_over(run: Path, notes: list[str]) -> None:
    with RunStore(run, StoreSection(), notes.append, is_new=True):
        play(run)
    assert (stored(run), notes) == (1, [])


def test_what_a_killed_attempt_left_is_in_the_store_before_the_next_one_sets_anything_aside(
    run: Path, notes: list[str]
) -> None:
    play(run)
    seen = []
    with RunStore(run, StoreSection(), notes.append, set_aside=lambda _: seen.append(stored(run))):
        play(run, index=1)
    assert (seen, stored(run), notes) == ([1], 2, [])


@pytest.mark.parametrize("is_new", [True, False])
def test_a_database_elsewhere_is_taken_up_also_by_a_new_run(
    run: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    monkeypatch.setattr(run_store, "Database", unreachable)
    section = StoreSection(url="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreFailure, match=r"does not answer: gone\. Start it, correct store\.url"):
        RunStore(run, section, notes.append, is_new=is_new).__enter__()


def test_what_a_database_refuses_of_an_earlier_attempt_is_told(
    run: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(run)
    set_aside: list[Database] = []

    def refusing(database: Database, *, final: bool, refused: Callable[[str], None]) -> int:
        refused("too wide")
        refused("too long")
        return load(database, final=final)

    monkeypatch.setattr(run_store, "load", refusing)
    with RunStore(run, StoreSection(), notes.append, set_aside=set_aside.append) as store:
        assert isinstance(store, RunStore) and len(set_aside) == 1
    assert [note.partition(" (")[2].partition(")")[0] for note in notes] == ["too wide"]


def test_episodes_that_are_not_in_the_database_at_the_end_are_told_of(
    run: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "_LAST_SECONDS", 0.0)
    monkeypatch.setattr(run_store, "Database", unreachable)
    with RunStore(run, StoreSection(), notes.append, is_new=True):
        play(run)
    assert [note.partition(" (")[0] for note in notes[:1]] == ["The store's database does not answer"]
    assert notes[1:] == [
        "Some episodes are not in the store's database yet, for the reason said above. They are kept in "
        f"{run / 'store'}, and the next command that reads this run enters them."
    ]


def test_the_store_is_limited_to_its_size_where_it_has_one(
    run: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(run_store, "limit_size", lambda _, max_bytes: limits.append(max_bytes))
    for max_gb in (None, 2.5):
        with RunStore(run, StoreSection(max_gb=max_gb), notes.append, is_new=True):
            play(run)
    assert set(limits) == {2.5e9} and notes == []


def unreachable(place: StoreLocation) -> Database:
    raise StoreUnreachable("gone")


# A store that is read


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which databases were opened and closed."""
    events: list[str] = []

    class Noted(Database):
        def __init__(self, place: StoreLocation):
            events.append("opened")
            super().__init__(place)

        def close(self) -> None:
            events.append("closed")
            super().close()

    monkeypatch.setattr(run_store, "Database", Noted)
    return events


def recorded(run: Path, store: object = None) -> RecordedRun:
    (run / "recipe.yaml").write_text(json.dumps({"store": store}))
    return RecordedRun(run, {}, {})


def test_what_a_killed_run_left_is_entered_where_no_process_works_on_it(
    run: Path, databases: list[str]
) -> None:
    with RunStore(run, StoreSection(), print):
        play(run)
    assert databases.count("opened") == databases.count("closed") == 2
    play(run, index=1)
    recorder = StoreRecorder(run, parse_keep("all"), Redactor())
    recorder.begin("unfinished", recorder.task(task_row(0, 2, 3)), step=1, phase="train", attempt=0, key="")
    recorder.close()
    databases.clear()
    lock = lock_folder(run)
    with open_run_store(recorded(run)) as store:
        assert [head.status for head in store.episodes()] == ["ended"]
    lock.close()
    with open_run_store(recorded(run)) as store:
        assert sorted(head.status for head in store.episodes()) == ["ended", "ended", "lost"]
    assert databases == ["opened", "closed"] * 2
    database = run_database(recorded(run))
    assert database is not None
    database.close()


def test_a_run_without_a_store_has_none(run: Path) -> None:
    assert (find_run_store(recorded(run)), run_database(recorded(run))) == (None, None)
    with pytest.raises(
        UsageError, match=rf"The run {run.name} has no store: it was made with store\.keep=off"
    ):
        open_run_store(recorded(run))


@pytest.mark.parametrize("section", [None, {}, {"url": None}, "other"])
def test_a_database_elsewhere_is_found_by_the_recipe(
    run: Path, monkeypatch: pytest.MonkeyPatch, section: object
) -> None:
    store_location(run, url="postgresql://somewhere", make=True)
    with pytest.raises(UsageError, match=rf"The episodes of {run.name} are in a database that its recipe"):
        find_run_store(recorded(run, section))
    urls: list[str | None] = []

    def noted(place: StoreLocation) -> Database:
        urls.append(place.url)
        return unreachable(place)

    monkeypatch.setattr(run_store, "Database", noted)
    monkeypatch.setenv("STORE_HOST", "somewhere")
    with pytest.raises(StoreFailure, match=rf"the episodes of {run.name} does not answer: gone"):
        find_run_store(recorded(run, {"url": "postgresql://${oc.env:STORE_HOST}/episodes"}))
    assert urls == ["postgresql://somewhere/episodes"]


def test_no_store_is_made_where_none_is_kept(run: Path, notes: list[str]) -> None:
    with RunStore(run, StoreSection(keep="off"), notes.append):
        pass
    assert store_location(run) is None and notes == []


@pytest.mark.parametrize(("status", "expected_notes"), [(200, []), (503, [NOT_SENT])])
def test_the_end_of_a_run_says_whether_its_spans_were_sent(
    run: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch, status: int, expected_notes: list[str]
) -> None:
    if status != 200:
        monkeypatch.setattr(run_store, "_LAST_SPANS_SECONDS", 0.5)
    with OtlpReceiver() as receiver:
        receiver.answer = lambda _: status
        with RunStore(run, StoreSection(otlp=receiver.url), notes.append, is_new=True):
            play(run)
    assert bool(receiver.spans) == (status == 200)
    assert notes[-1:] == expected_notes
