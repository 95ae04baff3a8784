"""The lines of each architecture with their costs, so that it is shown without torch. Older trials have none."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "drawing",
        sa.Column("study_id", sa.Integer(), sa.ForeignKey("study.id", name="fk_drawing_study_id"), nullable=False),
        sa.Column(
            "architecture_hash",
            sa.Text(),
            sa.ForeignKey("architecture.hash", name="fk_drawing_architecture_hash"),
            nullable=False,
        ),
        sa.Column("packed", sa.Text(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("study_id", "architecture_hash", name="pk_drawing"),
    )
