"""A trial names the unit that finished its highest rung, in the index of summaries: a front need not look for it."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = ["study_id", "purpose", "state", "steps", "rung", "number", "step_flops", "last_unit"]


def upgrade() -> None:
    op.add_column("trial", sa.Column("last_unit", sa.Integer(), nullable=True))
    op.execute(
        "UPDATE trial SET last_unit = (SELECT unit.id FROM unit WHERE unit.trial_id = trial.id"
        " AND unit.kind = 'train' AND unit.rung = trial.rung) WHERE rung IS NOT NULL"
    )
    op.drop_index("ix_trial_summary", table_name="trial")
    op.create_index("ix_trial_summary", "trial", COLUMNS)
