"""A unit that is done has a checksum of what it found, and a verdict has one. Older rows get theirs here."""

import sqlalchemy as sa
from alembic import op

from nas.store.upkeep.filling import fill

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("unit", sa.Column("checksum", sa.Text(), nullable=True))
    op.add_column("verdict", sa.Column("checksum", sa.Text(), nullable=True))
    fill(op.get_bind())
