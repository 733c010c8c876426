"""Removes texts and tokens of episodes from a store; their figures stay, so that counts and curves stay true."""

from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, func, select, text, update
from sqlalchemy.engine import Connection

from aworld_train.store import tables
from aworld_train.store.compression import decompressed
from aworld_train.store.conditions import where
from aworld_train.store.content import decoded_content, decoded_node, image_digests
from aworld_train.store.database import Database
from aworld_train.store.step_figures import mark_changed

_CONTENT_TABLES = (tables.contents, tables.texts, tables.tool_calls)
_CHUNK = 500
_LIMIT_SHARE = 0.9
"""A database that has reached its limit is cut to this part of it, so that not every load has to cut it."""


@dataclass(frozen=True)
class Pruned:
    episodes: int
    blobs: int
    bytes: int


def prune(database: Database, condition: str, *, superseded: bool = False) -> Pruned:
    columns = tables.episodes.c
    tests: list[ColumnElement[bool]] = [columns.run == database.location.run, columns.has_content]
    if superseded:
        tests.append(columns.status == "superseded")
    with database.begin() as connection:
        before = _size(connection, database)
        query = (
            select(columns.id)
            .join(tables.tasks, and_(tables.tasks.c.run == columns.run, tables.tasks.c.id == columns.task))
            .where(*tests, where(condition))
        )
        ids = list(connection.execute(query).scalars())
    for begin in range(0, len(ids), _CHUNK):
        # One transaction each, so that the write-ahead log stays small.
        with database.begin() as connection:
            _remove(connection, database.location.run, ids[begin : begin + _CHUNK])
    with database.begin() as connection:
        blobs = _remove_unused_blobs(connection) if database.is_sqlite else 0
    if database.is_sqlite:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM"))
            connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    with database.begin() as connection:
        return Pruned(len(ids), blobs, max(0, before - _size(connection, database)))


def limit_size(database: Database, max_bytes: float) -> int:
    """Remove the content of the oldest episodes while a database is too large; returns of how many."""
    columns, removed, allowed, first = tables.episodes.c, 0, max_bytes, 0.0
    query = select(columns.id, columns.began).where(columns.run == database.location.run, columns.has_content)
    while True:
        with database.begin() as connection:
            if _size(connection, database) <= allowed:
                return removed
            # From where the last ended: those before it are many, and have no content any more.
            oldest = query.where(columns.began >= first).order_by(columns.began).limit(_CHUNK)
            rows = connection.execute(oldest).all()
            if not rows:
                return removed
            _remove(connection, database.location.run, [row.id for row in rows])
        removed, allowed, first = removed + len(rows), max_bytes * _LIMIT_SHARE, rows[-1].began


def _remove(connection: Connection, run: str, episodes: list[str]) -> None:
    mark_changed(connection, run, tables.episodes.c.id.in_(episodes))
    for table in _CONTENT_TABLES:
        connection.execute(delete(table).where(table.c.episode.in_(episodes)))
    connection.execute(
        update(tables.episodes).where(tables.episodes.c.id.in_(episodes)).values(has_content=False)
    )


def _remove_unused_blobs(connection: Connection) -> int:
    used: set[str] = set()
    for data in connection.execute(
        select(tables.contents.c.data).execution_options(yield_per=_CHUNK)
    ).scalars():
        used |= decoded_content(decompressed(data)).blobs
    known = set(connection.execute(select(tables.blobs.c.digest)).scalars())
    # Images stand in prompts that are blobs themselves.
    for digest in sorted(used & known):
        data = connection.execute(
            select(tables.blobs.c.data).where(tables.blobs.c.digest == digest)
        ).scalar_one()
        with suppress(ValueError):  # of an image, or of the tools' schemas
            used |= image_digests(decoded_node(decompressed(data)).messages)
    unused = sorted(known - used)
    for begin in range(0, len(unused), _CHUNK):
        connection.execute(
            delete(tables.blobs).where(tables.blobs.c.digest.in_(unused[begin : begin + _CHUNK]))
        )
    return len(unused)


def _size(connection: Connection, database: Database) -> int:
    if not database.is_sqlite:
        total = connection.execute(select(func.sum(func.length(tables.contents.c.data)))).scalar_one()
        return int(total or 0)
    pages, free, size = (
        int(connection.execute(text(f"PRAGMA {name}")).scalar_one())
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
