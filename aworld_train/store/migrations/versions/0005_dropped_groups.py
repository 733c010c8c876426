"""An episode whose group is too small is dropped like others, with the reason as its cause."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute(
        "UPDATE episodes SET treatment = 'dropped', cause = COALESCE(cause, left_out) WHERE left_out IS NOT NULL"
    )
    op.drop_column("episodes", "left_out")
