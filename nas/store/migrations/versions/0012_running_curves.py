"""A running unit keeps the losses of every renewal of its lease, so that curves are seen while a trial trains."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("unit", sa.Column("progress_curve", sa.Text(), nullable=True))
