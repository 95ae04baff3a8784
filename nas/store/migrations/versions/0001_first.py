"""The tables of the first version."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "architecture",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_architecture"),
    )
    op.create_table(
        "device",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_device"),
        sa.UniqueConstraint("hash", name="uq_device_hash"),
    )
    op.create_table(
        "study",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("objectives", sa.Text(), nullable=False),
        sa.Column("data_hash", sa.Text(), nullable=True),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.CheckConstraint("length(name) > 0", name=op.f("ck_study_named")),
        sa.CheckConstraint("sequence >= 0", name=op.f("ck_study_sequence_counts")),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
        sa.UniqueConstraint("name", name="uq_study_name"),
    )
    op.create_table(
        "latency",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("architecture_hash", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("kind IN ('measured', 'predicted')", name=op.f("ck_latency_known_kind")),
        sa.CheckConstraint(
            "0 <= low AND low <= milliseconds AND milliseconds <= high", name=op.f("ck_latency_inside_its_interval")
        ),
        sa.ForeignKeyConstraint(["architecture_hash"], ["architecture.hash"], name="fk_latency_architecture_hash"),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_latency_device_id"),
        sa.PrimaryKeyConstraint("id", name="pk_latency"),
        sa.UniqueConstraint(
            "architecture_hash",
            "device_id",
            "phase",
            "problem",
            "kind",
            name="uq_latency_architecture_hash_device_id_phase_problem_kind",
        ),
    )
    op.create_table(
        "measurement",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("implementation", sa.Text(), nullable=False),
        sa.Column("configuration", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("milliseconds", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "(milliseconds IS NULL) = (failure IS NOT NULL)", name=op.f("ck_measurement_time_or_failure")
        ),
        sa.CheckConstraint("milliseconds IS NULL OR milliseconds >= 0", name=op.f("ck_measurement_not_negative")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name="fk_measurement_device_id"),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
    )
    op.create_index("ix_measurement_operation_device_id", "measurement", ["operation", "device_id"], unique=False)
    op.create_table(
        "space_version",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("number >= 0", name=op.f("ck_space_version_counts")),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name="fk_space_version_study_id"),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_space_version"),
    )
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("architecture_hash", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=True),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("parents", sa.Text(), nullable=False),
        sa.Column("choices", sa.Text(), nullable=False),
        sa.Column("space_version", sa.Integer(), nullable=False),
        sa.Column("known_results", sa.BigInteger(), nullable=False),
        sa.Column("cheap_values", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.CheckConstraint("(state = 'failed') = (error_kind IS NOT NULL)", name=op.f("ck_trial_error_when_failed")),
        sa.CheckConstraint(
            "(state IN ('complete', 'stopped', 'failed')) = (finished_at IS NOT NULL)", name=op.f("ck_trial_finished")
        ),
        sa.CheckConstraint("state <> 'complete' OR rung IS NOT NULL", name=op.f("ck_trial_complete_has_a_rung")),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'complete', 'stopped', 'failed')", name=op.f("ck_trial_known_state")
        ),
        sa.CheckConstraint("number >= 0 AND place >= 0 AND known_results >= 0", name=op.f("ck_trial_counts")),
        sa.CheckConstraint("rung IS NULL OR rung >= 0", name=op.f("ck_trial_rung_counts")),
        sa.ForeignKeyConstraint(["architecture_hash"], ["architecture.hash"], name="fk_trial_architecture_hash"),
        sa.ForeignKeyConstraint(
            ["study_id", "space_version"],
            ["space_version.study_id", "space_version.number"],
            name="fk_trial_study_id_space_version",
        ),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name="fk_trial_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
        sa.UniqueConstraint("id", "study_id", name="uq_trial_id_study_id"),
        sa.UniqueConstraint(
            "study_id", "architecture_hash", "seed", "purpose", name="uq_trial_study_id_architecture_hash_seed_purpose"
        ),
        sa.UniqueConstraint("study_id", "number", name="uq_trial_study_id_number"),
        sa.UniqueConstraint("study_id", "purpose", "place", name="uq_trial_study_id_purpose_place"),
    )
    op.create_index("ix_trial_study_id_purpose_state", "trial", ["study_id", "purpose", "state"], unique=False)
    op.create_table(
        "unit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_expires", sa.Double(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("released", sa.Integer(), nullable=False),
        sa.Column("checkpoint_uri", sa.Text(), nullable=True),
        sa.Column("checkpoint_sha256", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("device", sa.Text(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("error_text", sa.Text(), nullable=True),
        sa.Column("token", sa.Text(), nullable=False),
        sa.CheckConstraint("(state = 'failed') = (error_kind IS NOT NULL)", name=op.f("ck_unit_error_when_failed")),
        sa.CheckConstraint(
            "(state = 'running') = (lease_expires IS NOT NULL)", name=op.f("ck_unit_leased_when_running")
        ),
        sa.CheckConstraint(
            "(state IN ('done', 'failed')) = (sequence IS NOT NULL)", name=op.f("ck_unit_in_sequence_when_ended")
        ),
        sa.CheckConstraint("state <> 'running' OR owner IS NOT NULL", name=op.f("ck_unit_owned_when_running")),
        sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed')", name=op.f("ck_unit_known_state")),
        sa.CheckConstraint(
            "(checkpoint_uri IS NULL) = (checkpoint_sha256 IS NULL)", name=op.f("ck_unit_checkpoint_has_a_hash")
        ),
        sa.CheckConstraint("attempts >= released AND released >= 0", name=op.f("ck_unit_attempts_count")),
        sa.CheckConstraint("rung >= 0 AND steps >= 0", name=op.f("ck_unit_counts")),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name="fk_unit_study_id"),
        sa.ForeignKeyConstraint(
            ["trial_id", "study_id"], ["trial.id", "trial.study_id"], name="fk_unit_trial_id_study_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_unit"),
        sa.UniqueConstraint("study_id", "sequence", name="uq_unit_study_id_sequence"),
        sa.UniqueConstraint("trial_id", "rung", name="uq_unit_trial_id_rung"),
    )
    op.create_index(
        "ix_unit_open",
        "unit",
        ["study_id", "state"],
        unique=False,
        sqlite_where=sa.text("state IN ('queued', 'running')"),
        postgresql_where=sa.text("state IN ('queued', 'running')"),
    )
    op.create_table(
        "metric",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.CheckConstraint("step >= 0", name=op.f("ck_metric_counts")),
        sa.ForeignKeyConstraint(["unit_id"], ["unit.id"], name="fk_metric_unit_id"),
        sa.PrimaryKeyConstraint("unit_id", "name", "step", name="pk_metric"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "objective_value",
        sa.Column("unit_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "value BETWEEN -1.7976931348623157e+308 AND 1.7976931348623157e+308", name=op.f("ck_objective_value_finite")
        ),
        sa.ForeignKeyConstraint(["unit_id"], ["unit.id"], name="fk_objective_value_unit_id"),
        sa.PrimaryKeyConstraint("unit_id", "name", name="pk_objective_value"),
        sqlite_with_rowid=False,
    )
