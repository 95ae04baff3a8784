"""Trials of the finals in several variants, each with a recipe of its own; the scores of single documents."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SAME = ["study_id", "arm", "architecture_hash", "seed", "purpose"]


def upgrade() -> None:
    with op.batch_alter_table("trial") as trial:
        trial.add_column(sa.Column("variant", sa.Text(), nullable=False, server_default=""))
        trial.add_column(sa.Column("recipe", sa.Text(), nullable=True))
        trial.drop_constraint("uq_trial_study_id_arm_architecture_hash_seed_purpose", type_="unique")
        trial.create_unique_constraint(
            "uq_trial_study_id_arm_architecture_hash_seed_purpose_variant", [*SAME, "variant"]
        )
    op.create_table(
        "document_score",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("totals", sa.Text(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["unit_id"], ["unit.id"], name="fk_document_score_unit_id"),
        sa.PrimaryKeyConstraint("unit_id", "split", name="pk_document_score"),
        sqlite_with_rowid=False,
    )
