"""Brings a database to the newest form of the tables, with Alembic.

The file of a new run gets that form at once: Alembic takes most of a second to import, which is that of every run.
"""

from pathlib import Path
from typing import Any

from sqlalchemy import Column, MetaData, String, Table, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn

from aworld_train.episode.figures import COLUMNS
from aworld_train.errors import UsageError
from aworld_train.store import tables

NEWEST = "0007"
"""The newest revision below ``migrations/versions``."""
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def upgrade(connection: Connection) -> None:
    revision = revision_of(connection)
    connection.rollback()
    if revision is None and connection.dialect.name == "sqlite":
        _make(connection)
        return
    if revision == NEWEST:
        _add_columns(connection)
        return
    if revision is not None and revision > NEWEST:
        raise UsageError(
            f"The store was made by a newer aworld-train (its schema is {revision}, this one's {NEWEST}). Update the "
            "package to read it."
        )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, NEWEST)
    connection.commit()
    _add_columns(connection)


def _add_columns(connection: Connection) -> None:
    """Add the columns of figures that the table of episodes lacks: those of a later version of the package."""
    if not _missing_columns(connection):
        connection.rollback()
        return
    connection.rollback()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    for column in _missing_columns(connection):
        definition = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {tables.episodes.name} ADD COLUMN {definition}")
    connection.commit()


def _missing_columns(connection: Connection) -> list[Column[Any]]:
    names = {column["name"] for column in inspect(connection).get_columns(tables.episodes.name)}
    return [tables.episodes.c[name] for name in COLUMNS if name not in names]


def _make(connection: Connection) -> None:
    """Make the tables in an empty file, which another process may be doing too."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    if revision_of(connection) is None:
        tables.metadata.create_all(connection)
        _VERSION.create(connection)
        connection.execute(_VERSION.insert().values(version_num=NEWEST))
    connection.commit()


def revision_of(connection: Connection) -> str | None:
    """The revision of a database; None for an empty one."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.execute(select(_VERSION.c.version_num)).scalar_one_or_none()
