"""Which episodes count: those that were lost are no results, and those that are played again count nowhere."""

from collections.abc import Iterator

import pytest

from aworld_train.errors import UsageError
from aworld_train.store.database import Database
from aworld_train.store.events import TrainedRow
from aworld_train.store.keep import parse_keep
from aworld_train.store.loading import close_running, load, supersede
from aworld_train.store.place import StorePlace
from aworld_train.store.reading import Store
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from tests.stored_episodes import branching_content
from tests.stored_runs import task_row

PHASE = "eval"
FIGURES = {
    "outcome": "answered",
    "reward": 1.0,
    "scores": {"acc": 1.0},
    "suspicions": ["answer_in_query"],
    "seconds": 2.0,
}


@pytest.fixture
def store(place: StorePlace) -> Iterator[Store]:
    """A run with an episode of each status, of one task, and one of another phase; their ids end with their names."""
    writer = StoreRecorder(place.folder.parent, parse_keep("all"), Redactor())
    database = Database(place)
    task = writer.task(task_row(0, 2, 3))

    def begin(name: str, step: int, phase: str = PHASE) -> str:
        episode = f"{place.run[:8]} {name}"  # runs may share a database
        writer.begin(episode, task, step=step, phase=phase, attempt=0, key=name)
        return episode

    for name, step, phase in (("ended", 1, PHASE), ("superseded", 2, PHASE), ("other", 1, "train")):
        writer.end(begin(name, step, phase), FIGURES, branching_content())
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
    [(key, line)] = store.ended_lines(PHASE)
    assert (_name(key.id), line["reward"]) == ("ended", 1.0)
    [(other, _)] = store.ended_lines("train")
    assert _name(other.id) == "other"


def test_an_episode_that_is_played_again_counts_nowhere(store: Store) -> None:
    assert (store.count(), store.count(superseded=True)) == (4, 5)
    assert sorted(store.ids()) == sorted(head.id for head in store.episodes())
    assert sorted(map(_name, store.ids())) == ["ended", "lost", "other", "running"]
    assert store.steps() == [(PHASE, 1, 3), ("train", 1, 1)]
    assert [(task.episodes, task.last_step) for task in store.tasks()] == [(4, 1)]
    figures = {row["phase"]: (row["step"], row["episodes"], row["measured"]) for row in store.step_figures()}
    assert figures == {PHASE: (1, 3, 1), "train": (1, 1, 1)}
    assert store.values("outcome") == {"answered": 2, "infrastructure": 1}
    assert store.suspicions() == {"answer_in_query": 2}
    assert [(row["phase"], row["step"], row["calls"]) for row in store.tool_latencies()] == [
        (PHASE, 1, 1),
        ("train", 1, 1),
    ]


def test_an_episode_that_goes_on_has_no_outcome(store: Store) -> None:
    assert store.outcomes() == [
        (PHASE, 1, "answered", 1),
        (PHASE, 1, "infrastructure", 1),
        ("train", 1, "answered", 1),
    ]
    assert [_name(episode) for episode, *_ in store.outline()] == ["ended", "lost", "other"]


def test_a_row_of_an_episode_that_is_played_again_was_not_trained_on(store: Store) -> None:
    episode, number = store.trained_row(1, 0)
    assert (_name(episode.head.id), number) == ("ended", 0)
    steps = {_name(head.id): head.figures["trained_step"] for head in store.episodes(superseded=True)}
    assert steps == {"ended": 1, "superseded": None, "other": None, "lost": None, "running": None}
    with pytest.raises(UsageError, match="trained on 1 rows whose episodes are kept, and row 1 is none"):
        store.trained_row(1, 1)
