"""A measurement keeps what its compiled kernels use of a GPU: registers, spills, shared memory, warps."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("resources", sa.Text(), nullable=True))
