"""Studies, versions of spaces, architectures and trials have checksums too. Older rows get theirs here."""

import sqlalchemy as sa
from alembic import op

from nas.store.upkeep.filling import fill_rows

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = ("study", "space_version", "architecture", "trial")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("checksum", sa.Text(), nullable=True))
    fill_rows(op.get_bind(), TABLES)
