"""A run's store: loaded and exported during the run, after the episodes of an earlier attempt were entered."""

import random
from pathlib import Path

import pytest
from sqlalchemy import func, select

from aworld_train.recipe.schema import StoreSection
from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.keep import parse_keep
from aworld_train.store.place import store_place
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.training import run_store
from aworld_train.training.run_store import RunStore
from tests.otlp_receiver import OtlpReceiver
from tests.stored_runs import record_episode, task_row, write_run_files

NOT_SENT = "Some spans could not be sent to store.otlp; they are sent when the run goes on."


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
    place = store_place(run)
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


def test_no_store_is_made_where_none_is_kept(run: Path, notes: list[str]) -> None:
    with RunStore(run, StoreSection(keep="off"), notes.append):
        pass
    assert store_place(run) is None and notes == []


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
