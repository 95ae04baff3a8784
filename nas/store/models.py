"""The tables of a search: studies, architectures, trials and their units. Each docstring is the table's invariant.

What can be said as a constraint is one: a state that contradicts its row cannot be stored, by us or by anybody else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, cast

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from nas.store.records import TrialState, UnitKind, UnitState
from nas.store.types import Document, Moment

LARGEST = 1.7976931348623157e308  # the largest double; NaN is above it on PostgreSQL and null on SQLite


class Base(DeclarativeBase):
    """Names every constraint, so that a later migration can find it."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {str: Text(), datetime: Moment(), Any: Document(), list[Any]: Document()}


def _one_of(column: str, values: type[TrialState] | type[UnitState] | type[UnitKind]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value.value) for value in values)})", name=f"known_{column}")


class StudyRow(Base):
    """One search. `sequence` counts the units that ended; whoever ends one holds this row until the commit."""

    __tablename__ = "study"
    __table_args__ = (
        CheckConstraint("length(name) > 0", name="named"),
        CheckConstraint("sequence >= 0", name="sequence_counts"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    config: Mapped[Any]
    seed: Mapped[int] = mapped_column(BigInteger)
    objectives: Mapped[list[Any]]  # [{"name": ..., "direction": "minimize" | "maximize"}]
    data_hash: Mapped[str | None]
    version: Mapped[str]  # of the package that made the study
    sequence: Mapped[int] = mapped_column(BigInteger)
    token: Mapped[str]  # of the call that made the row: a retry after a lost connection knows its own


class SpaceVersionRow(Base):
    """The space of a study as it grew. Numbers count from 0; a version never changes."""

    __tablename__ = "space_version"
    __table_args__ = (CheckConstraint("number >= 0", name="counts"),)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    created_at: Mapped[datetime]


class ArchitectureRow(Base):
    """An architecture by its content hash, shared by all studies. The row never changes."""

    __tablename__ = "architecture"
    hash: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]


class TrialRow(Base):
    """One architecture trained with one seed for one purpose, at most once in an arm of a study.

    `state` goes waiting -> running -> complete | stopped | failed and never back. The last three have `finished_at`;
    only failed has an error. `number` counts within the study, `place` within the trials of one arm and purpose.
    """

    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("study_id", "number"),
        UniqueConstraint("study_id", "arm", "purpose", "place"),
        UniqueConstraint("study_id", "arm", "architecture_hash", "seed", "purpose"),
        UniqueConstraint("id", "study_id"),  # the target of a unit's reference to both
        ForeignKeyConstraint(["study_id", "space_version"], ["space_version.study_id", "space_version.number"]),
        _one_of("state", TrialState),
        CheckConstraint("number >= 0 AND place >= 0 AND known_results >= 0", name="counts"),
        CheckConstraint("rung IS NULL OR rung >= 0", name="rung_counts"),
        CheckConstraint("(state IN ('complete', 'stopped', 'failed')) = (finished_at IS NOT NULL)", name="finished"),
        CheckConstraint("(state = 'failed') = (error_kind IS NOT NULL)", name="error_when_failed"),
        CheckConstraint("state <> 'complete' OR rung IS NOT NULL", name="complete_has_a_rung"),
        Index(None, "study_id", "purpose", "state"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id"))
    number: Mapped[int]
    place: Mapped[int]
    architecture_hash: Mapped[str] = mapped_column(ForeignKey("architecture.hash"))
    seed: Mapped[int] = mapped_column(BigInteger)
    purpose: Mapped[str]
    arm: Mapped[str] = mapped_column(server_default="main")  # main, or a control such as random search
    state: Mapped[str]
    rung: Mapped[int | None]  # the highest finished rung
    steps: Mapped[int | None] = mapped_column(BigInteger)  # training steps at that rung
    operator: Mapped[str]
    parents: Mapped[list[Any]]  # numbers of trials
    choices: Mapped[Any]
    space_version: Mapped[int]
    known_results: Mapped[int] = mapped_column(BigInteger)  # told to the strategy before it proposed this: for replay
    known_trials: Mapped[int | None] = mapped_column(BigInteger)  # trials told to it before; None: it was told of none
    cheap_values: Mapped[Any]  # objectives that need no training, by name
    evidence: Mapped[Any] = mapped_column(nullable=True)  # of those that were measured: how, by name
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    error_kind: Mapped[str | None]
    error_text: Mapped[str | None]
    token: Mapped[str]


_OPEN = "state IN ('queued', 'running')"


class UnitRow(Base):
    """One rung of one trial, run by one owner at a time.

    `state` goes queued -> running -> done | failed, and back to queued only when its worker is lost or lets it go.
    Running means leased; done or failed means a place in the study's `sequence`, whose order is that of the commits.
    `attempts` only grows: with the owner it tells the holder of a lease from one who lost it.
    """

    __tablename__ = "unit"
    __table_args__ = (
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
        Index("ix_unit_open", "study_id", "state", sqlite_where=text(_OPEN), postgresql_where=text(_OPEN)),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id"))
    trial_id: Mapped[int]
    kind: Mapped[str] = mapped_column(server_default="train")
    rung: Mapped[int]
    steps: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str]
    owner: Mapped[str | None]
    lease_expires: Mapped[datetime | None]
    attempts: Mapped[int]
    released: Mapped[int]  # attempts that were given back and do not count
    checkpoint_uri: Mapped[str | None]
    checkpoint_sha256: Mapped[str | None]
    seconds: Mapped[float | None]
    device: Mapped[str | None]
    sequence: Mapped[int | None] = mapped_column(BigInteger)
    progress_step: Mapped[int | None] = mapped_column(BigInteger)  # as of the last renewal of its lease
    progress_loss: Mapped[float | None]
    progress_rate: Mapped[float | None]  # tokens per second
    progress_at: Mapped[datetime | None]
    error_kind: Mapped[str | None]
    error_text: Mapped[str | None]
    token: Mapped[str]


class ObjectiveValueRow(Base):
    """What a finished unit is judged by: finite, one value a name."""

    __tablename__ = "objective_value"
    __table_args__ = (
        CheckConstraint(f"value BETWEEN -{LARGEST!r} AND {LARGEST!r}", name="finite"),
        {"sqlite_with_rowid": False},
    )
    unit_id: Mapped[int] = mapped_column(ForeignKey("unit.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]


class MetricRow(Base):
    """Anything else that was measured, by step; a null value is not a number."""

    __tablename__ = "metric"
    __table_args__ = (CheckConstraint("step >= 0", name="counts"), {"sqlite_with_rowid": False})
    unit_id: Mapped[int] = mapped_column(ForeignKey("unit.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    value: Mapped[float | None]


class VerdictRow(Base):
    """How the finals of a study ended, as plain data. Rows are only added; the newest counts."""

    __tablename__ = "verdict"
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("study.id"), index=True)
    created_at: Mapped[datetime]
    document: Mapped[Any]
    token: Mapped[str]


study = cast(Table, StudyRow.__table__)
space_version = cast(Table, SpaceVersionRow.__table__)
architecture = cast(Table, ArchitectureRow.__table__)
trial = cast(Table, TrialRow.__table__)
unit = cast(Table, UnitRow.__table__)
objective_value = cast(Table, ObjectiveValueRow.__table__)
metric = cast(Table, MetricRow.__table__)
verdict = cast(Table, VerdictRow.__table__)

# Written out as in the index of open units: with bound parameters SQLite could not know that the index applies.
unit_is_open = text(f"unit.{_OPEN}")
