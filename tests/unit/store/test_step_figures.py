"""What is kept of a step is what its episodes come to, whatever has happened to them since."""

import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, update

from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.loading import close_running, load, set_aside, supersede
from aworld_train.store.pruning import prune
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.step_figures import RunFigures, run_figures
from aworld_train.store.store_location import StoreLocation, store_location
from tests.stored_runs import record_episode, task_row


def play(database: Database, step: int, *, first: int = 0, running: bool = False) -> None:
    """Load a step's episodes as while a run continues."""
    writer = StoreRecorder(database.location.folder.parent, parse_keep("all"), Redactor())
    row = task_row(0, 2, step)
    task = writer.task(row)
    for attempt in range(first, first + 4):
        record_episode(writer, random.Random(attempt), task, row, 2, step, step, "train", 0, attempt, "")
    if running:
        writer.begin(uuid.uuid4().hex, task, step=step, phase="train", attempt=9, key=f"uid{step}-0_9")
    writer.close()
    load(database)


def kept_and_computed(database: Database) -> tuple[RunFigures, RunFigures]:
    run = database.location.run
    with database.begin() as connection:
        kept = run_figures(connection, run)
        connection.execute(update(tables.steps).where(tables.steps.c.run == run).values(figures=None))
        computed = run_figures(connection, run)
        connection.rollback()
    return kept, computed


def kept_steps(database: Database) -> set[int]:
    table = tables.steps.c
    query = select(table.step).where(table.run == database.location.run, table.figures.is_not(None))
    with database.begin() as connection:
        return set(connection.execute(query).scalars())


CHANGES: list[Callable[[Database], object]] = [
    lambda database: supersede(database, 1, validated=True),
    lambda database: set_aside(database, "train", ["uid1-0_0"]),
    lambda database: prune(database, "step=1"),
    close_running,
    lambda database: play(database, 1, first=4),
    lambda database: play(database, 7),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_kept_is_what_episodes_come_to(
    place: StoreLocation, change: Callable[[Database], object]
) -> None:
    database = Database(place)
    for step in range(1, 5):
        play(database, step, running=step == 1)
    assert kept_steps(database) == {1, 2}  # the newest steps change all the time
    before, _ = kept_and_computed(database)
    assert [(step, count) for _, step, count in before.steps()] == [(1, 5), (2, 4), (3, 4), (4, 4)]
    change(database)
    kept, computed = kept_and_computed(database)
    assert kept == computed != before
    load(database, final=True)
    assert kept_steps(database) == {step for _, step, _ in computed.by_step}
    assert kept_and_computed(database)[0] == computed
    database.close()


def test_the_figures_of_a_step_read_no_other_steps(tmp_path: Path) -> None:
    """SQLite knows nothing of a run's size, and would take the index of another order for all of its episodes."""
    place = store_location(tmp_path, make=True)
    assert place is not None
    database, statements = Database(place), []
    play(database, 1)
    with database.begin() as connection:

        def note(*call: Any) -> None:
            statements.append((call[2], call[3]))

        event.listen(connection, "before_cursor_execute", note)
        run_figures(connection, place.run)
        event.remove(connection, "before_cursor_execute", note)
        for statement, values in statements[1:]:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
            assert "episodes_by_step (run=? AND phase=? AND step=?)" in plan[0].detail
    database.close()
