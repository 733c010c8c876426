"""Indexes with which lists of episodes read no long rows."""

from alembic import op

revision = "0003"
down_revision = "0002"

_LISTED = (
    "run began id status step phase attempt task outcome treatment reward accuracy scorer scoring turns tool_calls "
    "tool_errors response_tokens sampled_tokens seconds weights_first trained_step advantage suspicions"
)


def upgrade() -> None:
    op.create_index("episodes_listed", "episodes", _LISTED.split())
    op.create_index("episodes_by_id", "episodes", ["id", "run", "status", "phase", "step"])
    op.drop_index("tool_calls_by_name", "tool_calls")
    op.create_index("tool_calls_by_name", "tool_calls", ["name", "is_error", "episode", "seconds"])
