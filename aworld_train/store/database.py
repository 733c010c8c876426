"""A run's database: SQLite in the run's folder, or PostgreSQL for several runs and machines."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy
from sqlalchemy import event, make_url, select
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from aworld_train.errors import UsageError
from aworld_train.store import tables
from aworld_train.store.compression import decompressed
from aworld_train.store.store_location import StoreLocation

_BUSY_SECONDS = 30.0
_CONNECT_SECONDS = 10
_READER_CACHE_KIB = 65_536
_READER_MAPPED_BYTES = 1 << 31
_SCHEMA_LOCK = 7_310_201_117
"""Any number that other users of a PostgreSQL server do not take for an advisory lock."""
_REFUSING_CLASSES = ("22", "23", "54")
"""PostgreSQL's classes of errors for values out of range, values that break a constraint, and its limits.

Psycopg raises the last, as for the rows of an index, as ``OperationalError``, like a lost connection.
"""


class StoreUnreachable(Exception):
    """The database does not answer now; it may later."""


class ValuesRefused(Exception):
    """The database, or its driver, never takes these values."""


class Database:
    """A connection pool to a store's database; with ``read_only`` its tables must be there."""

    def __init__(self, location: StoreLocation, *, read_only: bool = False):
        self.location = location
        self.engine = _engine(location, read_only)
        self.is_sqlite = location.url is None
        try:
            if not read_only:
                self._prepare()
        except OperationalError as error:
            self.close()
            raise StoreUnreachable(brief(error)) from error
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction, of which nothing holds after StoreUnreachable (it went away) or ValuesRefused."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except StatementError as error:
            kind = ValuesRefused if _is_refusal(error) else StoreUnreachable
            raise kind(brief(error)) from error

    def release_mapped(self, connection: Connection) -> None:
        """Give back what a reader has mapped of the file, which is all of it after a search."""
        if self.is_sqlite:
            for size in (0, _READER_MAPPED_BYTES):
                connection.exec_driver_sql(f"PRAGMA mmap_size={size}")

    def close(self) -> None:
        self.engine.dispose()

    def blob(self, connection: Connection, digest: str) -> bytes | None:
        data = connection.execute(
            select(tables.blobs.c.data).where(tables.blobs.c.digest == digest)
        ).scalar_one_or_none()
        return None if data is None else decompressed(data)

    def _prepare(self) -> None:
        with self.engine.connect() as connection:
            if self.is_sqlite:
                tables.make_tables(connection)
            else:
                connection.execute(sqlalchemy.text(f"SELECT pg_advisory_lock({_SCHEMA_LOCK})"))
                try:
                    tables.make_tables(connection)
                finally:
                    connection.rollback()
                    connection.execute(sqlalchemy.text(f"SELECT pg_advisory_unlock({_SCHEMA_LOCK})"))
                    connection.commit()
        with self.begin() as connection:
            if not connection.execute(
                select(tables.runs.c.id).where(tables.runs.c.id == self.location.run)
            ).first():
                connection.execute(
                    tables.runs.insert().values(
                        id=self.location.run,
                        name=self.location.name,
                        folder=str(self.location.folder.parent.resolve()),
                        created=time.time(),
                    )
                )


def check_url(url: str) -> None:
    try:
        parsed = make_url(url)
    except SQLAlchemyError:
        parsed = URL.create("")
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise UsageError(
            "`store.url` is not an address of a PostgreSQL database, such as postgresql://user@host:5432/database; "
            "without it the run keeps its episodes in its folder."
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise UsageError(
            "`store.url` needs the PostgreSQL driver, which is not installed: pip install 'aworld-train[postgres]'."
        ) from None


def _engine(location: StoreLocation, read_only: bool) -> Engine:
    if location.url is not None:
        check_url(location.url)
        url = make_url(location.url).set(drivername="postgresql+psycopg")
        return sqlalchemy.create_engine(
            url, pool_pre_ping=True, pool_size=4, connect_args={"connect_timeout": _CONNECT_SECONDS}
        )
    if not read_only and not location.file.exists():
        os.close(os.open(location.file, os.O_CREAT | os.O_RDWR, 0o600))
    mode = "ro" if read_only else "rw"
    path = f"file:{location.file.resolve().as_uri().removeprefix('file://')}?mode={mode}&uri=true"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        if read_only:
            cursor.execute(f"PRAGMA cache_size=-{_READER_CACHE_KIB}")
            # A search reads all texts: without this each page of the file is a system call.
            cursor.execute(f"PRAGMA mmap_size={_READER_MAPPED_BYTES}")
        else:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()

    return engine


def _is_refusal(error: StatementError) -> bool:
    """Whether the values are at fault, and not the database, its rights or the way to it."""
    if not isinstance(error, DBAPIError):
        return True  # SQLAlchemy cannot write the values
    if error.connection_invalidated:
        return False
    if code := getattr(error.orig, "sqlstate", None):
        return str(code)[:2] in _REFUSING_CLASSES
    return isinstance(error, DataError | IntegrityError | ProgrammingError)


def brief(error: Exception) -> str:
    """An error in one line, a database's in its own words, without the statement and its values."""
    text = str(error.orig) if isinstance(error, StatementError) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
