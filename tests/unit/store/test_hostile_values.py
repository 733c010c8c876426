"""What models, tools and datasets write, and no database holds, keeps no other episode out of the store."""

import math
import random
import uuid
from typing import Any

import pytest

from aworld_train.episode.figures import figures_of
from aworld_train.episode.tool_calls import ToolCallRecord
from aworld_train.store.content import EpisodeContent, ModelCall, StoredAgent, StoredNode, StoredRow
from aworld_train.store.database import Database, StoreUnreachable
from aworld_train.store.event_files import event_files
from aworld_train.store.loading import StoreLoader, load
from aworld_train.store.reading import Store
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import StoreLocation
from tests.stored_runs import record_episode, task_row

LONG = "".join(random.Random(3).choice("abcdefghijklmnop") for _ in range(20_000))
"""No compression brings it below the 2,704 bytes of a row of PostgreSQL's indexes."""


def recorder(place: StoreLocation) -> StoreRecorder:
    return StoreRecorder(place.folder.parent, parse_keep("all"), Redactor())


def play(
    writer: StoreRecorder,
    number: int,
    *,
    row: dict[str, Any] | None = None,
    figures: dict[str, Any] | None = None,
    content: EpisodeContent | None = None,
) -> str:
    episode = uuid.uuid4().hex
    task = writer.task(row or task_row(number, 2, 3))
    writer.begin(episode, task, step=1, phase="train", attempt=0, key=f"uid-{number}_0")
    played = {"outcome": "answered", "treatment": "trained", **(figures or {})}
    writer.end(episode, figures_of(played), content)
    return episode


def agent_content(
    tool: str = "search", agent: str = "agent", weights: int = 0, tokens: int = 1
) -> EpisodeContent:
    node = StoredNode(-1, token_count=tokens, logprobs=b"", versions=(weights, weights))
    call = ModelCall(0, 1.0, 0.5, "stop", 8, 1.0)
    row = StoredRow(0, (0,), (0,), 0)
    use = ToolCallRecord(tool, "{}", "nothing", False, 1.0, 0.1, server=tool)
    return EpisodeContent((StoredAgent(agent, (node,), (call,)),), (use,), (row,), None, "")


HELD: dict[str, dict[str, Any]] = {
    "long tool name": {"content": agent_content(tool=LONG)},
    "long agent name": {"content": agent_content(agent=LONG)},
    "long scorer": {"figures": {"scorer": LONG}},
    "NaN": {"figures": {"reward": math.nan, "parts": {"format": math.inf}, "scores": {"acc": -math.inf}}},
    "NUL and half a surrogate": {"figures": {"cause": "a\0b\ud800"}},
    "NUL in a task": {"row": {**task_row(9, 2, 3), "data_source": "a\0b\ud800"}},
    "wide index": {"row": task_row(2**40, 2, 3)},
    "wide weights": {"figures": {"weights": [2**40, 2**40]}, "content": agent_content(weights=2**40)},
}
# Numbers beyond the 64 bits with a sign that databases have.
REFUSED: dict[str, dict[str, Any]] = {
    "weights": {"figures": {"weights": [2**63, 2**63]}},
    "tokens": {"content": agent_content(tokens=2**63)},
}


def entered(place: StoreLocation, hostile: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The figures of an episode that was entered between two others of its frame, and the reasons of refusals."""
    writer, reasons = recorder(place), list[str]()
    ids = [play(writer, 0), play(writer, 1, **hostile), play(writer, 2)]
    writer.close()
    database = Database(place)
    count = load(database, final=True, refused=reasons.append)
    database.close()
    assert count == 9, "each of three tasks, of three beginnings and of three ends, once"
    assert not event_files(place.events)
    with Store(place) as store:
        heads = {head.id: head for head in store.episodes()}
        assert sorted(heads) == sorted(ids)
        assert {head.status for head in heads.values()} == {"ended"}
        assert {head.figures.treatment for head in heads.values()} == {"trained"}
        return reasons, heads[ids[1]].figures.line()


@pytest.mark.parametrize("name", HELD)
def test_what_databases_do_not_hold_as_it_is_is_stored_in_a_form_that_they_do(
    place: StoreLocation, name: str
) -> None:
    reasons, _ = entered(place, HELD[name])
    assert reasons == []


def test_long_names_that_begin_alike_stay_apart(place: StoreLocation) -> None:
    writer = recorder(place)
    for number in range(2):
        play(writer, number, content=agent_content(tool=f"{LONG}{number}"))
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        names = [use.name for each in store.episodes() for use in store.episode(each.id).content.tool_calls]  # type: ignore[union-attr]
        assert sorted(names) == [f"{LONG}0", f"{LONG}1"]
        assert len(store.figures().values("tool")) == 2


@pytest.mark.parametrize("name", REFUSED)
def test_an_episode_that_is_refused_says_why_and_holds_up_no_other(place: StoreLocation, name: str) -> None:
    reasons, figures = entered(place, REFUSED[name])
    assert len(reasons) == 1
    assert reasons[0] in figures["cause"]


def test_what_is_kept_of_a_refused_outcome_is_short(place: StoreLocation) -> None:
    writer = recorder(place)
    episode = play(writer, 0, figures={"outcome": LONG, "turns": 1 << 63})
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert store.episode(episode).head.figures.outcome == LONG[:50]


def test_a_task_that_is_refused_keeps_its_episodes(place: StoreLocation) -> None:
    reasons, figures = entered(place, {"row": task_row(2**63, 2, 3)})
    assert len(reasons) == 1
    assert figures.get("cause") is None


def test_a_loader_tells_a_refusal_once_and_goes_on(place: StoreLocation) -> None:
    notes: list[str] = []
    writer = recorder(place)
    for number in range(3):
        play(writer, number, figures={"turns": 1 << 63})
    record_episode(
        writer,
        random.Random(0),
        writer.task(task_row(0, 2, 3)),
        task_row(0, 2, 3),
        2,
        3,
        1,
        "train",
        0,
        0,
        "",
    )
    writer.close()
    loader = StoreLoader(lambda: Database(place), notes.append, seconds=0.05)
    loader.start()
    assert loader.close(max_seconds=30)
    assert len(notes) == 1
    assert "refused" in notes[0]
    with Store(place) as store:
        assert store.count() == 4


def test_a_loader_that_meets_the_unexpected_says_so_and_tries_again(place: StoreLocation) -> None:
    notes: list[str] = []
    failures = [RuntimeError("a surprise")]

    def after(database: Database) -> None:
        if failures:
            raise failures.pop()

    writer = recorder(place)
    play(writer, 0)
    writer.close()
    loader = StoreLoader(lambda: Database(place), notes.append, seconds=0.05, loaded=after)
    loader.start()
    assert loader.close(max_seconds=30)
    assert "a surprise" in notes[0]
    assert len(notes) == 2


def test_a_database_that_cannot_take_any_episode_is_waited_for(place: StoreLocation) -> None:
    writer = recorder(place)
    episode = play(writer, 0, content=agent_content())
    writer.close()
    database = Database(place)
    rename(database, "texts", "away")
    try:
        with pytest.raises(StoreUnreachable):
            load(database, final=True)
        assert event_files(place.events)
    finally:
        rename(database, "away", "texts")
    load(database, final=True)
    database.close()
    with Store(place) as store:
        assert store.episode(episode).content is not None


def rename(database: Database, old: str, new: str) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")
