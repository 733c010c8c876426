"""Makes the tables of a store's database, and adds the columns of figures that a later version of the package has."""

from typing import Any

from sqlalchemy import Column, MetaData, String, Table, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn

from aworld_train.episode.figures import COLUMNS
from aworld_train.errors import UsageError
from aworld_train.store import tables

VERSION = "0007"
"""Of the tables, but for columns of figures; another one when a change would make older databases unreadable."""
_VERSIONS = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's form, which tools for databases know."""


def make_tables(connection: Connection) -> None:
    """Raises UsageError for a database with tables of another version."""
    version = version_of(connection)
    if version not in (None, VERSION):
        raise UsageError(
            f"The store was made by {'a newer' if version > VERSION else 'an older'} aworld-train: its tables have "
            f"version {version}, this one's {VERSION}. Read it with that version of the package."
        )
    if version is None or _missing_columns(connection):
        connection.rollback()
        if connection.dialect.name == "sqlite":  # another process may be doing it too
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        if version_of(connection) is None:
            tables.metadata.create_all(connection)
            _VERSIONS.create(connection)
            connection.execute(_VERSIONS.insert().values(version_num=VERSION))
        for column in _missing_columns(connection):
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {tables.episodes.name} ADD COLUMN {definition}")
    connection.commit()


def _missing_columns(connection: Connection) -> list[Column[Any]]:
    names = {column["name"] for column in inspect(connection).get_columns(tables.episodes.name)}
    return [tables.episodes.c[name] for name in COLUMNS if name not in names]


def version_of(connection: Connection) -> str | None:
    """The version of a database's tables; None for an empty one."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.execute(select(_VERSIONS.c.version_num)).scalar_one_or_none()
