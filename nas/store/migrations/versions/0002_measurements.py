"""A measurement keeps its samples, says in words why it failed, and with which others it took turns."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("dtype", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("samples", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("message", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("turns", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("token", sa.Text(), nullable=True))
    op.create_index("ix_measurement_token", "measurement", ["token"], unique=False)
