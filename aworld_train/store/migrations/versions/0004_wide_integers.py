"""Numbers of 64 bits where datasets and engines choose them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return  # its integers have 64 bits under every name
    for table, name, nullable in (
        ("tasks", "index", False),
        ("episodes", "weights_first", True),
        ("episodes", "weights_last", True),
        ("calls", "weights", True),
    ):
        op.alter_column(
            table, name, type_=sa.BigInteger, existing_type=sa.Integer, existing_nullable=nullable
        )
