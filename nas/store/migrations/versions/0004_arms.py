"""Arms, probe units, live progress, verdicts; the table of latencies that nothing used is dropped."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("latency")
    op.create_table(
        "verdict",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name="fk_verdict_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_verdict"),
    )
    op.create_index("ix_verdict_study_id", "verdict", ["study_id"], unique=False)
    with op.batch_alter_table("trial") as trial:
        trial.add_column(sa.Column("arm", sa.Text(), nullable=False, server_default="main"))
        trial.add_column(sa.Column("steps", sa.BigInteger(), nullable=True))
        trial.add_column(sa.Column("known_trials", sa.BigInteger(), nullable=True))
        trial.drop_constraint("uq_trial_study_id_purpose_place", type_="unique")
        trial.create_unique_constraint("uq_trial_study_id_arm_purpose_place", ["study_id", "arm", "purpose", "place"])
        trial.drop_constraint("uq_trial_study_id_architecture_hash_seed_purpose", type_="unique")
        trial.create_unique_constraint(
            "uq_trial_study_id_arm_architecture_hash_seed_purpose",
            ["study_id", "arm", "architecture_hash", "seed", "purpose"],
        )
    with op.batch_alter_table("unit") as unit:
        unit.add_column(sa.Column("kind", sa.Text(), nullable=False, server_default="train"))
        unit.add_column(sa.Column("progress_step", sa.BigInteger(), nullable=True))
        unit.add_column(sa.Column("progress_loss", sa.Double(), nullable=True))
        unit.add_column(sa.Column("progress_rate", sa.Double(), nullable=True))
        unit.add_column(sa.Column("progress_at", sa.Double(), nullable=True))
        unit.drop_constraint("uq_unit_trial_id_rung", type_="unique")
        unit.create_unique_constraint("uq_unit_trial_id_kind_rung", ["trial_id", "kind", "rung"])
        unit.create_check_constraint(op.f("ck_unit_known_kind"), "kind IN ('train', 'probe')")
    last = "SELECT unit.steps FROM unit WHERE unit.trial_id = trial.id AND unit.rung = trial.rung"
    op.execute(f"UPDATE trial SET steps = ({last}) WHERE rung IS NOT NULL")
