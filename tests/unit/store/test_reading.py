"""What a store tells of a run; episodes that were lost are no results, and those played again count nowhere."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection

from aworld_train.episode.figures import COLUMNS, EpisodeFigures, figures_of
from aworld_train.errors import UsageError
from aworld_train.store import reading, tables
from aworld_train.store.content import packed_floats
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.events import TrainedRow
from aworld_train.store.loading import close_running, load, supersede
from aworld_train.store.reading import EpisodeHead, EpisodeKey, RowUse, Store, TaskHead, TaskKey
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import StoreLocation, store_location
from tests.stored_episodes import branching_content
from tests.stored_runs import TOOLS, make_stored_run, open_store, task_row

PHASE = "eval"
FIGURES = {
    "outcome": "answered",
    "reward": 1.0,
    "scores": {"acc": 1.0},
    "suspicions": ["answer_in_query"],
    "seconds": 2.0,
}


@pytest.fixture
def store(place: StoreLocation) -> Iterator[Store]:
    """A run with an episode of each status, of one task, and one of another phase; their ids end with their names."""
    writer = StoreRecorder(place.folder.parent, parse_keep("all"), Redactor())
    database = Database(place)
    task = writer.task(task_row(0, 2, 3))

    def begin(name: str, step: int, phase: str = PHASE) -> str:
        episode = f"{place.run[:8]} {name}"  # runs may share a database
        writer.begin(episode, task, step=step, phase=phase, attempt=0, key=name)
        return episode

    for name, step, phase in (("ended", 1, PHASE), ("superseded", 2, PHASE), ("other", 1, "train")):
        writer.end(begin(name, step, phase), figures_of(FIGURES), branching_content())
    begin("lost", 1)
    writer.trained(1, [TrainedRow("ended_0", 0.5, 5), TrainedRow("superseded_0", 0.5, 5)])
    writer.close()
    load(database, final=True)
    supersede(database, 1, validated=True)
    close_running(database)
    writer = StoreRecorder(place.folder.parent, parse_keep("all"), Redactor())
    begin("running", 1)
    writer.close()
    load(database, final=True)
    database.close()
    with Store(place) as opened:
        assert {_name(head.id): head.status for head in opened.episodes(superseded=True)} == {
            **{status: status for status in ("ended", "superseded", "lost", "running")},
            "other": "ended",
        }
        yield opened


def _name(episode: str) -> str:
    return episode.partition(" ")[2]


def test_only_episodes_of_the_phase_that_have_ended_are_results(store: Store) -> None:
    [(key, figures)] = store.ended_figures(PHASE)
    assert (_name(key.id), figures.reward) == ("ended", 1.0)
    [(other, _)] = store.ended_figures("train")
    assert _name(other.id) == "other"


def test_an_episode_that_is_played_again_counts_nowhere(store: Store) -> None:
    assert (store.count(), store.count(superseded=True)) == (4, 5)
    assert sorted(store.ids()) == sorted(head.id for head in store.episodes())
    assert sorted(map(_name, store.ids())) == ["ended", "lost", "other", "running"]
    assert store.figures().steps() == [(PHASE, 1, 3), ("train", 1, 1)]
    assert [(task.episodes, task.last_step) for task in store.tasks()] == [(4, 1)]
    figures = {
        row["phase"]: (row["step"], row["episodes"], row["measured"])
        for row in store.figures().step_figures()
    }
    assert figures == {PHASE: (1, 3, 1), "train": (1, 1, 1)}
    assert store.figures().values("outcome") == {"answered": 2, "infrastructure": 1}
    assert (
        sum(store.figures().values("tool").values())
        == sum(row["calls"] for row in store.figures().tool_latencies())
        == 2
    )
    assert store.figures().suspicions() == {"answer_in_query": 2}
    assert [(row["phase"], row["step"], row["calls"]) for row in store.figures().tool_latencies()] == [
        (PHASE, 1, 1),
        ("train", 1, 1),
    ]


def test_an_episode_that_goes_on_has_no_outcome(store: Store) -> None:
    assert store.figures().outcomes() == [
        (PHASE, 1, "answered", 1),
        (PHASE, 1, "infrastructure", 1),
        ("train", 1, "answered", 1),
    ]
    assert [_name(episode) for episode, *_ in store.outline()] == ["ended", "lost", "other"]


def test_a_row_of_an_episode_that_is_played_again_was_not_trained_on(store: Store) -> None:
    episode, number = store.trained_row(1, 0)
    assert (_name(episode.head.id), number) == ("ended", 0)
    steps = {_name(head.id): head.trained_step for head in store.episodes(superseded=True)}
    assert steps == {"ended": 1, "superseded": None, "other": None, "lost": None, "running": None}
    with pytest.raises(UsageError, match="trained on 1 rows whose episodes are kept, and row 1 is none"):
        store.trained_row(1, 1)


# What is told of a run


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Two tasks before training and two in each of two steps; each was played four times."""
    opened = open_store(make_stored_run(tmp_path_factory.mktemp("runs"), steps=2, tasks=2))
    assert opened is not None
    with opened as store:
        yield store


@pytest.mark.parametrize(
    "sort",
    [
        *("began", "step", "reward", "accuracy", "seconds", "turns", "tool_calls", "tool_errors"),
        *("sampled_tokens", "advantage", "outcome", "index"),
    ],
)
@pytest.mark.parametrize("descending", [False, True])
def test_a_list_has_an_order_and_pages_and_figures_that_are_missing_are_at_its_end(
    played: Store, sort: str, descending: bool
) -> None:
    ordered = played.episodes(sort=sort, descending=descending)
    pairs = [(head.to_json()[sort], head.id) for head in ordered]
    known = [pair for pair in pairs if pair[0] is not None]
    missing = sorted((pair[1] for pair in pairs[len(known) :]), reverse=descending)
    assert pairs == sorted(known, reverse=descending) + [(None, episode) for episode in missing]
    assert len(pairs) == 24
    assert played.ids(sort=sort, descending=descending) == [head.id for head in ordered]
    assert played.episodes(sort=sort, descending=descending, limit=5, offset=3) == ordered[3:8]


def test_the_first_that_began_is_first(played: Store) -> None:
    heads = played.episodes()
    assert heads == played.episodes(sort="began") and played.ids() == [head.id for head in heads]
    with pytest.raises(UsageError, match=r"Episodes cannot be sorted by 'key'; by began, step, "):
        played.ids(sort="key")


def test_a_head_has_the_figures_that_are_not_of_the_store(played: Store) -> None:
    (head,) = played.episodes("step=1 and index=1 and reward=1 and tool_calls=0")
    empty = EpisodeFigures()
    assert dataclasses.replace(head, id="", task="", began=0.0, ended=0.0, figures=empty) == EpisodeHead(
        *("", "", 1, "products", "What is 3 times 4?", "12", "ended", 1, "train", 1, 0.0, 0.0),
        *(1.0, 1, 0.5, True, empty),
    )
    assert head.figures.suspicions == ["answer_in_query"]
    fields = {name: value for name, value in vars(head).items() if name != "figures"}
    columns = {name: getattr(head.figures, name) for name in COLUMNS}
    more = {"weights_first": 0, "weights_last": 0, "suspicions": ["answer_in_query"]}
    assert head.to_json() == {**fields, **columns, **more}


def test_conditions_and_searched_texts_choose_episodes(played: Store) -> None:
    assert played.count("phase=train") == len(played.episodes("phase=train")) == 16
    assert played.count("index=1 and step=2") == 4
    assert played.count(search=" OUT of order ") == len(played.ids(search="out of order")) == 6
    assert played.count("step=0", search="out of order") == 2
    assert played.count("  ", search=" ") == 24


def test_a_bounded_count_says_where_it_stops(played: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = ("", "tool=calculator", "phase=train and outcome=timeout")
    for search in ("", "let me think", "answer", "nowhere"):
        for condition in conditions:
            exact = played.count(condition, search=search)
            assert played.bounded_count(condition, search=search) == (exact, False)
            monkeypatch.setattr(reading, "_MAX_COUNTED", 3)
            assert played.bounded_count(condition, search=search) == (min(exact, 3), exact > 3)
            monkeypatch.undo()


def test_whole_episodes_are_found_by_their_key_and_not_among_all_of_the_run(played: Store) -> None:
    statements: list[tuple[str, Any]] = []

    @event.listens_for(played._database.engine, "before_cursor_execute")
    def note(_: Any, __: Any, statement: str, parameters: Any, *more: Any) -> None:
        statements.append((statement, parameters))

    assert len(list(played.whole_episodes(played.ids()))) == 24
    [(found, values)] = [each for each in statements if "FROM episodes LEFT" in each[0].replace("\n", "")]
    with played._database.begin() as connection:
        plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {found}", values)]
    assert "SEARCH episodes USING INDEX sqlite_autoindex_episodes_1 (id=?)" in plan


def test_a_bounded_search_reads_the_newest_texts(played: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert played.search_begin() is None
    monkeypatch.setattr(reading, "MAX_SEARCHED", 5)
    since, newest = played.search_begin(), played.episodes(descending=True, limit=6)
    assert since == newest[5].began
    assert played.episodes(descending=True, search="let me think", since=since) == newest[:5]
    assert played.bounded_count(search="let me think", since=since) == (5, True)
    assert played.bounded_count(search="nowhere", since=since) == (0, True)
    assert played.search_begin(f"id={newest[4].id}") is None


def test_what_steps_and_figures_there_are(played: Store) -> None:
    steps = [("val", 0), ("train", 1), ("train", 2)]
    assert played.figures().steps() == [(phase, step, 8) for phase, step in steps]
    assert played.figures().values("outcome") == {"answered": 18, "timeout": 6}
    assert played.figures().values("tool") == {"calculator": 12}
    assert played.figures().outcomes() == [
        (phase, step, outcome, count)
        for phase, step in steps
        for outcome, count in (("answered", 6), ("timeout", 2))
    ]
    assert played.figures().suspicions() == {"answer_in_query": 6}
    figures: dict[str, Any] = {"episodes": 8, "measured": 6, "turns": 1.5, "response_tokens": 9.5}
    figures |= dict.fromkeys(("reward", "accuracy"), cast("float", pytest.approx(2 / 3)))
    assert played.figures().step_figures() == [
        {"phase": phase, "step": step, "staleness": None if phase == "val" else 0.0, **figures}
        for phase, step in steps
    ]
    calls = {"tool": "calculator", "calls": 4, "errors": 2, "mean_seconds": pytest.approx(0.1)}
    assert played.figures().tool_latencies() == [
        {"phase": phase, "step": step, "max_seconds": pytest.approx(0.1), **calls} for phase, step in steps
    ]
    heads = played.episodes()
    began, ended = ([getattr(head, name) for head in heads] for name in ("began", "ended"))
    assert played.newest() == (24, max(began), max(ended))
    assert played.outline() == [
        (head.id, head.phase, head.step, head.figures.outcome, head.accuracy)
        for head in sorted(heads, key=lambda head: (head.step, head.id))
    ]


def test_tasks_have_the_figures_of_their_episodes_and_their_rows(played: Store) -> None:
    listed = played.tasks()
    assert played.tasks(limit=2, offset=1) == listed[1:3]
    heads = {head.task: head for head in played.episodes()}
    assert listed == [
        TaskHead(
            task,
            heads[task].index,
            "products",
            "number",
            heads[task].question,
            heads[task].correct_answer,
            4,
            cast("float", pytest.approx(2 / 3)),
            heads[task].step,
        )
        for task in sorted(heads, key=lambda task: (heads[task].index, task))
    ]
    assert played.tasks(limit=2, offset=1) == listed[1:3] and len(listed) == 6
    rows = list(played.task_rows())
    assert [key for key, _ in rows] == [
        TaskKey(task.id, task.index, task.source, task.question, task.answer) for task in listed
    ]
    assert all(row["reward_model"]["ground_truth"] == key.answer for key, row in rows)


def test_the_lines_of_a_phase_come_in_the_order_of_their_begins(played: Store) -> None:
    lines = list(played.ended_figures("train"))
    assert [key for key, _ in lines] == [
        EpisodeKey(head.id, head.task, head.attempt, head.began, head.ended or 0.0)
        for head in played.episodes("phase=train")
    ]
    assert {(figures.validate, figures.seconds) for _, figures in lines} == {(False, 1.25)}


# Whole episodes


def test_an_episode_is_found_by_its_id_or_by_a_beginning_that_is_its_own(played: Store) -> None:
    head = played.episodes()[0]
    assert played.episode(head.id).head == played.episode(head.id[:-1]).head == head
    first = [episode[0] for episode in played.ids()]
    several = next(letter for letter in first if first.count(letter) > 1)
    with pytest.raises(
        UsageError, match=f"Several episodes begin with '{several}' in .*`runs episodes` lists"
    ):
        played.episode(several)
    for name in ("no such", "", "%", head.id[:-1] + "_"):
        with pytest.raises(UsageError, match=f"Unknown episode '{name}'"):
            played.episode(name)


def test_a_whole_episode_has_everything_that_was_recorded(played: Store) -> None:
    (head,) = played.episodes("step=1 and index=1 and reward=1 and tool_calls=1")
    episode = played.episode(head.id)
    assert (episode.figures.seconds, episode.figures.tool_calls) == (1.25, 1)
    assert episode.task_row == task_row(1, 3, 4)
    assert list(episode.tools.values()) == [TOOLS]
    assert episode.content is not None
    prompt = episode.content.agents[0].nodes[0]
    assert [message.content for message in prompt.messages] == ["What is 3 times 4?"] and prompt.tokens
    (use,) = episode.rows
    assert (use.trained_step, use.masked_in, use.advantage, use.advantages) == (1, 10, 0.5, ())
    assert played.trained_row(1, use.position or 0) == (episode, 0)
    assert "What is" not in repr(dataclasses.replace(episode, head=None))  # type: ignore[arg-type]


def test_many_episodes_are_read_as_one_by_one(played: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_EPISODES_AT_ONCE", 3)
    ids = played.ids(sort="reward")[:7]
    assert list(played.whole_episodes([*ids[:4], "none", *ids[4:]])) == [played.episode(each) for each in ids]


def test_a_shared_blob_is_read_once_and_one_that_is_missing_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_stored_run(tmp_path, steps=0, tasks=1, attempts=3)
    read: list[str] = []
    blob = Database.blob

    def noted(database: Database, connection: Connection, digest: str) -> bytes | None:
        read.append(digest)
        return blob(database, connection, digest)

    monkeypatch.setattr(Database, "blob", noted)
    with reading.Store(_place(folder)) as store:
        list(store.whole_episodes(store.ids()))
        assert len(read) == len(set(read)) == 2
        assert all(store.blob(digest) for digest in set(read)) and store.blob("none") is None
    database = Database(_place(folder))
    with database.begin() as connection:
        connection.execute(tables.blobs.delete())
    database.close()
    with reading.Store(_place(folder)) as store:
        episode = store.episode(store.ids()[0])
    assert episode.tools == {} and episode.content is not None
    prompt, *turns = episode.content.agents[0].nodes
    assert prompt.redacted and not any(turn.redacted for turn in turns)


def test_the_advantages_of_single_tokens_are_read(tmp_path: Path) -> None:
    writer = StoreRecorder(tmp_path, parse_keep("all"), Redactor())
    writer.begin("one", writer.task(task_row(0, 2, 3)), step=1, phase="train", attempt=0, key="one")
    writer.begin("two", writer.task(task_row(0, 2, 3)), step=1, phase="train", attempt=1, key="two")
    writer.end("one", figures_of(FIGURES), branching_content())
    rows = [TrainedRow("one_0", 0.5, 2, packed_floats([0.25, 0.75])), TrainedRow("one_1", None, 3)]
    writer.trained(1, rows)
    writer.close()
    database = Database(_place(tmp_path))
    load(database, final=True)
    database.close()
    with Store(_place(tmp_path)) as store:
        episode = store.episode("one")
        assert [(use.position, use.masked_in, use.advantage) for use in episode.rows] == [
            (0, 2, 0.5),
            (1, 3, None),
        ]
        assert [list(use.advantages) for use in episode.rows] == [[0.25, 0.75], []]
        unended = store.episode("two")
        assert (unended.content, unended.rows, unended.tools) == (None, [], {})
        assert unended.figures == EpisodeFigures()
    assert RowUse() == RowUse(None, None, None, None, ())


def _place(folder: Path) -> StoreLocation:
    place = store_location(folder, make=True)
    assert place is not None
    return place


def test_a_store_is_read_without_being_made(tmp_path: Path) -> None:
    place = _place(tmp_path)
    with Store(place) as store, pytest.raises(StoreUnreachable):
        store.count()
    assert not place.file.exists()


def test_a_store_closes_its_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Database] = []
    monkeypatch.setattr(Database, "close", lambda database: closed.append(database))
    with Store(_place(tmp_path)) as store:
        assert closed == []
    assert closed == [store._database]
