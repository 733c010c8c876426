"""The tables of the store. Columns of figures that a later version of the package has are added to older ones.

Figures that people filter by are columns. Texts and tokens are in ``contents``, one compressed value an episode; what
episodes have in common (tasks' prompts, tools' schemas, images) is in ``blobs``, once.
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn

from aworld_train.episode.figures import COLUMNS, FIGURES
from aworld_train.errors import UsageError

VERSION = "0008"
"""Of the tables, but for columns of figures; another one when a change would make older databases unreadable."""

metadata = MetaData()
_TYPES = {int: Integer, float: Float, str: String, dict: JSON}

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("folder", String, nullable=False),
    Column("created", Float, nullable=False),
)

event_files = Table(
    "event_files",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    # How many of its bytes are loaded.
    Column("loaded", BigInteger, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("id", String, primary_key=True),
    Column("index", BigInteger, nullable=False),
    Column("source", String, nullable=False),
    Column("scorer", String, nullable=False),
    Column("question", Text, nullable=False),
    Column("answer", Text, nullable=False),
    # The dataset's row: JSON, compressed.
    Column("row", LargeBinary, nullable=False),
    Index("tasks_in_order", "run", "source", "index", "id"),
)

# What lists sort, filter and count by: these read its index alone, in order of time, and none of the long rows.
_LISTED = (
    "run began id status step phase attempt task task_index outcome treatment reward accuracy scorer scoring turns "
    "tool_calls tool_errors sampled_tokens seconds trained_step advantage suspicions finish_reasons"
)

episodes = Table(
    "episodes",
    metadata,
    Column("id", String, primary_key=True),
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("task", String, nullable=False),
    # running, ended, lost (its process ended first) or superseded (a resumed run has played its step again).
    Column("status", String, nullable=False),
    Column("step", Integer, nullable=False),
    Column("phase", String, nullable=False),
    Column("attempt", Integer, nullable=False),
    # What the training framework calls it; empty outside of training.
    Column("key", String, nullable=False),
    Column("began", Float, nullable=False),
    Column("ended", Float),
    *(Column(name, Text if FIGURES[name][0].is_text else _TYPES[kind]) for name, kind in COLUMNS.items()),
    # Its task's, so that a list by tasks reads no tasks; null until it has ended.
    Column("task_index", BigInteger),
    Column("accuracy", Float),
    Column("weights_first", BigInteger),
    Column("weights_last", BigInteger),
    # The step that trained on it; null for one that was not.
    Column("trained_step", Integer),
    Column("advantage", Float),
    # Comma-separated, with a comma at both ends; the reasons for which the model's turns ended are each there once.
    Column("suspicions", String),
    Column("finish_reasons", String),
    # The whole line of traces/episodes.jsonl.
    Column("figures", JSON),
    Column("has_content", Boolean, nullable=False, default=False),
    # Unix time at which its spans were sent; 0 where they were refused, null until then.
    Column("spans_sent", Float),
    ForeignKeyConstraint(["run", "task"], ["tasks.run", "tasks.id"], ondelete="CASCADE"),
    Index("episodes_by_step", "run", "phase", "step"),
    Index("episodes_by_task", "run", "task", "status", "reward", "step"),
    Index("episodes_by_key", "run", "key"),
    Index("episodes_by_status", "run", "status"),
    Index("episodes_by_spans", "run", "spans_sent", "status"),
    Index("episodes_listed", *_LISTED.split()),
)

steps = Table(
    "steps",
    metadata,
    Column("run", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("phase", String, primary_key=True),
    Column("step", Integer, primary_key=True),
    # What its episodes come to (see ``step_figures``), packed; null where they have changed since.
    Column("figures", LargeBinary),
)

contents = Table(
    "contents",
    metadata,
    Column("episode", ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

texts = Table(
    "texts",
    metadata,
    Column("episode", ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
    # What the model and the tools wrote, in lower case, for searches; long ones are cut.
    Column("text", Text, nullable=False),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("episode", ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("server", String, nullable=False),
    Column("began", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("is_error", Boolean, nullable=False),
    Column("replayed", Boolean, nullable=False),
    Index("tool_calls_by_name", "name", "episode", "is_error"),
    sqlite_with_rowid=False,  # without an index of its own beside the table
)

rows = Table(
    "rows",
    metadata,
    Column("episode", ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("agent", String, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("sampled_tokens", Integer, nullable=False),
    # The step that trained on it, its place in that step's batch, and how many tokens were under the mask then.
    Column("trained_step", Integer),
    Column("position", Integer),
    Column("masked_in", Integer),
    Column("advantage", Float),
    # Of each token of the response, packed; null where all under the mask are equal.
    Column("advantages", LargeBinary),
    Index("rows_by_position", "trained_step", "position"),
)

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
            metadata.create_all(connection)
            _VERSIONS.create(connection)
            connection.execute(_VERSIONS.insert().values(version_num=VERSION))
        for column in _missing_columns(connection):
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {episodes.name} ADD COLUMN {definition}")
    connection.commit()


def _missing_columns(connection: Connection) -> list[Column[Any]]:
    names = {column["name"] for column in inspect(connection).get_columns(episodes.name)}
    return [episodes.c[name] for name in COLUMNS if name not in names]


def version_of(connection: Connection) -> str | None:
    """The version of a database's tables; None for an empty one."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.execute(select(_VERSIONS.c.version_num)).scalar_one_or_none()
