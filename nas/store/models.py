"""The tables: studies, architectures, trials and their units; devices and measurements. The comment above a table is
its invariant.

Everything that can be a constraint is one, so the database rejects a row that contradicts itself, from any program.
These are plain SQLAlchemy tables: importing its object-relational mapper costs as much CPU as all of `nas status`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from nas.store.records import TrialState, UnitKind, UnitState
from nas.store.types import Document, Moment

LARGEST = 1.7976931348623157e308  # the largest double; NaN is above it on PostgreSQL and null on SQLite

metadata = MetaData(
    naming_convention={  # every constraint has a name, so that a later migration can find it
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def required(name: str, kind: Any, *constraints: Any, **options: Any) -> Column[Any]:
    """A column that always has a value."""
    return Column(name, kind, *constraints, nullable=False, **options)


def optional(name: str, kind: Any, *constraints: Any, **options: Any) -> Column[Any]:
    """A column that may be null."""
    return Column(name, kind, *constraints, nullable=True, **options)


def key(name: str, kind: Any = Integer, *constraints: Any) -> Column[Any]:
    """A column of the primary key."""
    return Column(name, kind, *constraints, primary_key=True)


def _one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value.value) for value in values)})", name=f"known_{column}")


# One search. `sequence` counts the units that ended. A transaction that ends a unit holds this row until its commit.
study = Table(
    "study",
    metadata,
    key("id"),
    required("name", Text, unique=True),
    required("created_at", Moment),
    required("config", Document),
    required("seed", BigInteger),
    required("objectives", Document),  # [{"name": ..., "direction": "minimize" | "maximize"}]
    optional("data_hash", Text),
    required("version", Text),  # of the package that made the study
    required("sequence", BigInteger),
    optional("ending", Document),  # why the last search ended; null while it runs, see `nas.engine.ending`
    required("token", Text),  # of the call that made the row: a retry after a lost connection finds its own row by it
    CheckConstraint("length(name) > 0", name="named"),
    CheckConstraint("sequence >= 0", name="sequence_counts"),
)

# The space of a study as it grew. Numbers count from 0. A version never changes.
space_version = Table(
    "space_version",
    metadata,
    key("study_id", Integer, ForeignKey("study.id")),
    key("number"),
    required("text", Text),
    required("created_at", Moment),
    CheckConstraint("number >= 0", name="counts"),
)

# An architecture by its content hash, shared by all studies. The row never changes.
architecture = Table("architecture", metadata, key("hash", Text), required("text", Text))

# The lines of a drawn architecture with their costs, for the length of the study's task, see `nas.store.drawings`: so
# that it can be shown without torch. They follow from the architecture, and the first ones are kept.
drawing = Table(
    "drawing",
    metadata,
    key("study_id", Integer, ForeignKey("study.id")),
    key("architecture_hash", Text, ForeignKey("architecture.hash")),
    required("packed", Text),
)

# One architecture trained with one seed for one purpose in one variant, at most once in an arm of a study.
#
# `state` goes waiting -> running -> complete | stopped | failed and never back. The last three have `finished_at`.
# Only a failed trial has an error. `number` counts within the study, `place` within the trials of one arm and purpose.
trial = Table(
    "trial",
    metadata,
    key("id"),
    required("study_id", Integer, ForeignKey("study.id")),
    required("number", Integer),
    required("place", Integer),
    required("architecture_hash", Text, ForeignKey("architecture.hash")),
    required("seed", BigInteger),
    required("purpose", Text),
    required("arm", Text),  # main, or a control such as random search
    required("state", Text),
    optional("rung", Integer),  # the highest finished rung
    optional("steps", BigInteger),  # training steps at that rung
    optional("last_unit", Integer),  # the unit that finished it
    required("operator", Text),
    required("parents", Document),  # numbers of trials
    required("choices", Document),
    required("space_version", Integer),
    required("known_results", BigInteger),  # results that the strategy knew when it proposed this trial: for replay
    optional("known_trials", BigInteger),  # started trials that it knew then; null: it knew none
    required("variant", Text),  # how a trial of the finals differs: its length, tuned options
    optional("recipe", Document),  # options that replace those of the study's recipe
    required("cheap_values", Document),  # objectives that need no training, by name
    optional("evidence", Document),  # how those that were measured were found, by name
    optional("parameters", BigInteger),
    optional("step_flops", Double),  # of one training step: forward and backward pass of a batch
    required("created_at", Moment),
    optional("started_at", Moment),
    optional("finished_at", Moment),
    optional("error_kind", Text),
    optional("error_text", Text),
    required("token", Text),
    UniqueConstraint("study_id", "number"),
    UniqueConstraint("study_id", "arm", "purpose", "place"),
    UniqueConstraint("study_id", "arm", "architecture_hash", "seed", "purpose", "variant"),
    UniqueConstraint("id", "study_id"),  # the target of a unit's reference to both
    ForeignKeyConstraint(["study_id", "space_version"], ["space_version.study_id", "space_version.number"]),
    _one_of("state", TrialState),
    CheckConstraint("number >= 0 AND place >= 0 AND known_results >= 0", name="counts"),
    CheckConstraint("rung IS NULL OR rung >= 0", name="rung_counts"),
    CheckConstraint("(state IN ('complete', 'stopped', 'failed')) = (finished_at IS NOT NULL)", name="finished"),
    CheckConstraint("(state = 'failed') = (error_kind IS NOT NULL)", name="error_when_failed"),
    CheckConstraint("state <> 'complete' OR rung IS NOT NULL", name="complete_has_a_rung"),
    # With all that summaries of a study need of its trials: they need not read the rows, which are wide.
    Index("ix_trial_summary", "study_id", "purpose", "state", "steps", "rung", "number", "step_flops", "last_unit"),
)

OPEN = "state IN ('queued', 'running')"
index_of_open_units = Index("ix_unit_open", "study_id", "state", sqlite_where=text(OPEN))

# One rung of one trial, run by one owner at a time.
#
# `state` goes queued -> running -> done | failed, and back to queued only if its worker is lost or gives it back.
# A running unit has a lease. A done or failed unit has a place in the study's `sequence`, which is the order of the
# commits. `attempts` only grows: together with the owner it identifies the one valid holder of the lease. The progress
# is that of the running attempt: it is written when the lease is renewed and cleared when the attempt ends.
#
# A probe has rung 0 and steps 0. Once it is done, the trial has its first training unit. What a machine outside the
# cluster found is a probe too: it is inserted when it has ended, and its rung is 1 + the place of the objective.
unit = Table(
    "unit",
    metadata,
    key("id"),
    required("study_id", Integer, ForeignKey("study.id")),
    required("trial_id", Integer),
    required("kind", Text),
    required("rung", Integer),
    required("steps", BigInteger),
    required("state", Text),
    optional("owner", Text),
    optional("lease_expires", Moment),
    required("attempts", Integer),
    required("released", Integer),  # attempts that were given back and do not count
    optional("checkpoint_uri", Text),
    optional("checkpoint_sha256", Text),
    optional("seconds", Double),
    optional("device", Text),
    optional("sequence", BigInteger),
    optional("progress_step", BigInteger),  # this and the next three: at the last renewal of its lease
    optional("progress_loss", Double),
    optional("progress_rate", Double),  # tokens per second
    optional("progress_at", Moment),
    optional("progress_curve", Text),  # "step loss" of every renewal, a line each; no loss if it was not finite
    optional("error_kind", Text),
    optional("error_text", Text),
    required("token", Text),
    UniqueConstraint("trial_id", "kind", "rung"),
    UniqueConstraint("study_id", "sequence"),
    ForeignKeyConstraint(["trial_id", "study_id"], ["trial.id", "trial.study_id"]),
    _one_of("state", UnitState),
    _one_of("kind", UnitKind),
    CheckConstraint("rung >= 0 AND steps >= 0", name="counts"),
    CheckConstraint("attempts >= released AND released >= 0", name="attempts_count"),
    CheckConstraint("(state = 'running') = (lease_expires IS NOT NULL)", name="leased_when_running"),
    CheckConstraint("state <> 'running' OR owner IS NOT NULL", name="owned_when_running"),
    CheckConstraint("(state IN ('done', 'failed')) = (sequence IS NOT NULL)", name="in_sequence_when_ended"),
    CheckConstraint("(state = 'failed') = (error_kind IS NOT NULL)", name="error_when_failed"),
    CheckConstraint("(checkpoint_uri IS NULL) = (checkpoint_sha256 IS NULL)", name="checkpoint_has_a_hash"),
    index_of_open_units,
)

# The objectives of a finished unit: finite, one value a name.
objective_value = Table(
    "objective_value",
    metadata,
    key("unit_id", Integer, ForeignKey("unit.id")),
    key("name", Text),
    required("value", Double),
    CheckConstraint(f"value BETWEEN -{LARGEST!r} AND {LARGEST!r}", name="finite"),
    sqlite_with_rowid=False,
)

# Everything else that was measured, by step. A null value is not a number.
metric = Table(
    "metric",
    metadata,
    key("unit_id", Integer, ForeignKey("unit.id")),
    key("name", Text),
    key("step", BigInteger),
    optional("value", Double),
    CheckConstraint("step >= 0", name="counts"),
    sqlite_with_rowid=False,
)

# The score of each held-out document after a unit. The metric of all is the sum of `totals` over that of `weights`.
document_score = Table(
    "document_score",
    metadata,
    key("unit_id", Integer, ForeignKey("unit.id")),
    key("split", Text),
    required("metric", Text),
    required("names", Document),
    required("totals", Document),
    required("weights", Document),
    sqlite_with_rowid=False,
)

# The result of a study's finals, as plain data. Rows are only added; the newest counts.
verdict = Table(
    "verdict",
    metadata,
    key("id"),
    required("study_id", Integer, ForeignKey("study.id"), index=True),
    required("created_at", Moment),
    required("document", Document),
    required("token", Text),
)

# Written out as in the index of open units: with bound parameters SQLite could not know that the index applies.
unit_is_open = text(f"unit.{OPEN}")

# A device as its fingerprint describes it; `hash` is of the canonical fingerprint.
device = Table(
    "device",
    metadata,
    key("id"),
    required("hash", Text, unique=True),
    required("fingerprint", Document),
)

# One configuration of one operation on one problem: either milliseconds, or the reason why there are none.
#
# Rows are only added; the newest counts. Rows with the same value in `turns` were timed in turns: sample i of each was
# taken in round i. The driver and the versions of torch and Triton are part of the device.
measurement = Table(
    "measurement",
    metadata,
    key("id"),
    required("operation", Text),
    required("problem", Text),  # canonical JSON: sizes, flags, device, threads
    required("dtype", Text),
    required("implementation", Text),
    required("configuration", Text),  # canonical JSON
    required("source", Text),  # hash of the code that ran
    required("device_id", Integer, ForeignKey("device.id")),
    optional("milliseconds", Double),
    optional("low", Double),
    optional("high", Double),
    optional("samples", Document),  # milliseconds, in the order in which they were taken
    optional("failure", Text),  # its kind
    optional("message", Text),
    optional("turns", Text),
    optional("resources", Document),  # of the compiled kernels: registers, spills, shared memory, warps
    required("token", Text),  # of the call that made the row: a retry after a lost connection finds its own row by it
    required("created_at", Moment),
    CheckConstraint("(milliseconds IS NULL) = (failure IS NOT NULL)", name="time_or_failure"),
    CheckConstraint("milliseconds IS NULL OR milliseconds >= 0", name="not_negative"),
    Index(None, "operation", "device_id"),
    Index(None, "token"),
)
