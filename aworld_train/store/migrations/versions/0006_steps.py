"""Figures of steps, which are kept once they are over; indexes lose what only these needed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_LISTED = (
    "run began id status step phase attempt task outcome treatment reward accuracy scorer scoring turns tool_calls "
    "tool_errors sampled_tokens seconds trained_step advantage suspicions"
)


def upgrade() -> None:
    op.create_table(
        "steps",
        sa.Column("run", sa.String, sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("phase", sa.String, primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("figures", sa.LargeBinary),
    )
    op.execute("INSERT INTO steps (run, phase, step) SELECT DISTINCT run, phase, step FROM episodes")
    op.drop_index("episodes_by_id", "episodes")
    op.drop_index("episodes_listed", "episodes")
    op.create_index("episodes_listed", "episodes", _LISTED.split())
