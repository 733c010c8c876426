"""The first form of the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
    )
    op.create_table(
        "event_files",
        sa.Column("run", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("loaded", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tasks",
        sa.Column("run", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("scorer", sa.String, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("row", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "episodes",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("run", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("task", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("outcome", sa.String),
        sa.Column("treatment", sa.String),
        sa.Column("cause", sa.Text),
        sa.Column("left_out", sa.Text),
        sa.Column("reward", sa.Float),
        sa.Column("accuracy", sa.Float),
        sa.Column("scorer", sa.String),
        sa.Column("scoring", sa.String),
        sa.Column("turns", sa.Integer),
        sa.Column("tool_calls", sa.Integer),
        sa.Column("tool_errors", sa.Integer),
        sa.Column("rows", sa.Integer),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("response_tokens", sa.Integer),
        sa.Column("sampled_tokens", sa.Integer),
        sa.Column("seconds", sa.Float),
        sa.Column("generate_seconds", sa.Float),
        sa.Column("tool_seconds", sa.Float),
        sa.Column("weights_first", sa.Integer),
        sa.Column("weights_last", sa.Integer),
        sa.Column("trained_step", sa.Integer),
        sa.Column("advantage", sa.Float),
        sa.Column("suspicions", sa.String),
        sa.Column("parts", sa.JSON),
        sa.Column("figures", sa.JSON),
        sa.Column("has_content", sa.Boolean, nullable=False),
        sa.ForeignKeyConstraint(["run", "task"], ["tasks.run", "tasks.id"], ondelete="CASCADE"),
    )
    op.create_index("episodes_by_key", "episodes", ["run", "key"])
    op.create_index("episodes_by_status", "episodes", ["run", "status"])
    op.create_index("episodes_by_step", "episodes", ["run", "phase", "step"])
    op.create_index("episodes_by_task", "episodes", ["run", "task"])
    op.create_table(
        "calls",
        sa.Column("episode", sa.String, sa.ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("agent", sa.String, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("finish_reason", sa.String, nullable=False),
        sa.Column("malformed", sa.Boolean, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("sampled_tokens", sa.Integer, nullable=False),
        sa.Column("temperature", sa.Float, nullable=False),
        sa.Column("weights", sa.Integer),
        sa.Column("delivered", sa.Boolean, nullable=False),
    )
    op.create_table(
        "contents",
        sa.Column("episode", sa.String, sa.ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "rows",
        sa.Column("episode", sa.String, sa.ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("agent", sa.String, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("sampled_tokens", sa.Integer, nullable=False),
        sa.Column("trained_step", sa.Integer),
        sa.Column("position", sa.Integer),
        sa.Column("masked_in", sa.Integer),
        sa.Column("advantage", sa.Float),
        sa.Column("advantages", sa.LargeBinary),
    )
    op.create_index("rows_by_position", "rows", ["trained_step", "position"])
    op.create_table(
        "texts",
        sa.Column("episode", sa.String, sa.ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "tool_calls",
        sa.Column("episode", sa.String, sa.ForeignKey("episodes.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("server", sa.String, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("is_error", sa.Boolean, nullable=False),
        sa.Column("replayed", sa.Boolean, nullable=False),
    )
    op.create_index("tool_calls_by_name", "tool_calls", ["name", "episode"])
