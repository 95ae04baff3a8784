"""Studies, versions of spaces, architectures and trials have checksums too. Older rows get theirs here."""

import sqlalchemy as sa
from alembic import op

from nas.store.upkeep.filling import ROWS, fill_rows

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ROWS:
        op.add_column(table, sa.Column("checksum", sa.Text(), nullable=True))
    fill_rows(op.get_bind())
