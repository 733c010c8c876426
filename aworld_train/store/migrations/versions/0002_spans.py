"""Of which episodes the spans are sent."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("episodes", sa.Column("spans_sent", sa.Float))
    op.create_index("episodes_by_spans", "episodes", ["run", "spans_sent", "status"])
