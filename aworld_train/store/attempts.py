"""Which attempts of an evaluation the store has, by their keys, so that each is made once."""

from collections.abc import Iterable, Mapping

from sqlalchemy import and_, select, update

from aworld_train.store import tables
from aworld_train.store.database import Database
from aworld_train.store.step_figures import mark_changed

_KEYS_AT_ONCE = 500


def attempts_by_status(database: Database, phase: str) -> Mapping[str, bool | None]:
    """Whether each attempt of a phase that is not set aside has a score, by its key; None for one under way."""
    columns = tables.episodes.c
    query = select(columns.key, columns.status, columns.accuracy).where(
        columns.run == database.location.run, columns.phase == phase, columns.status != "superseded"
    )
    with database.begin() as connection:
        return {
            row.key: row.accuracy is not None if row.status == "ended" else None
            for row in connection.execute(query)
        }


def set_aside(database: Database, phase: str, keys: Iterable[str]) -> None:
    """Mark attempts as ``superseded``, because they are made again."""
    table, ordered, run = tables.episodes, sorted(keys), database.location.run
    with database.begin() as connection:
        for begin in range(0, len(ordered), _KEYS_AT_ONCE):
            made_again = and_(
                table.c.run == run,
                table.c.phase == phase,
                table.c.key.in_(ordered[begin : begin + _KEYS_AT_ONCE]),
            )
            mark_changed(connection, run, made_again)
            connection.execute(update(table).where(made_again).values(status="superseded"))
