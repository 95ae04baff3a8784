"""An index that holds what summaries of a study need of its trials, so that they need not read the wide rows."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_trial_study_id_purpose_state", table_name="trial", if_exists=True)
    columns = ["study_id", "purpose", "state", "steps", "rung", "number", "step_flops"]
    op.create_index("ix_trial_summary", "trial", columns, if_not_exists=True)
