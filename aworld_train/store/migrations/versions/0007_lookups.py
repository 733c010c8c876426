"""Indexes that answer for one episode or one task, so that a page reads no more of a long run than it shows."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.drop_index("episodes_by_task", "episodes")
    op.create_index("episodes_by_task", "episodes", ["run", "task", "status", "reward", "step"])
    op.drop_index("tool_calls_by_name", "tool_calls")
    op.create_index("tool_calls_by_name", "tool_calls", ["name", "episode", "is_error"])
    op.create_index("tasks_in_order", "tasks", ["run", "source", "index", "id"])
