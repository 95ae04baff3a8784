"""A trial keeps how its measured costs were found."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trial", sa.Column("evidence", sa.Text(), nullable=True))
