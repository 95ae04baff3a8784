"""What the store hands out: plain values that need no connection and cross process boundaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class TrialState(StrEnum):
    """Where a trial stands; the last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class UnitState(StrEnum):
    """Where a rung of a trial stands; the last two are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class UnitKind(StrEnum):
    """What a unit does: train up to a number of steps, or score an untrained model."""

    TRAIN = "train"
    PROBE = "probe"


class Refusal(StrEnum):
    """Why a trial was not added."""

    NUMBER_TAKEN = "number taken"
    ARCHITECTURE_KNOWN = "architecture known"
    LIMIT_REACHED = "limit reached"


@dataclass(frozen=True, kw_only=True)
class Study:
    id: int
    name: str
    created_at: datetime
    config: dict[str, Any]
    seed: int
    objectives: list[dict[str, Any]]
    data_hash: str | None
    version: str
    sequence: int  # units ended so far


@dataclass(frozen=True, kw_only=True)
class SpaceVersion:
    number: int
    text: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A rung to train, as its holder needs it; `attempt` goes back with `finish` and `fail`."""

    id: int
    study_id: int
    trial_id: int
    number: int
    purpose: str
    architecture_hash: str
    architecture: str
    choices: Any
    seed: int
    rung: int
    steps: int
    owner: str | None
    attempt: int
    released: int  # attempts that do not count: attempt - released is how often it was really tried
    start_uri: str | None  # the checkpoint of the rung below
    start_sha256: str | None


@dataclass(frozen=True)
class TrialAdded:
    """The trial is in the database; `unit` is its first rung, leased if an owner was given, None if it failed."""

    trial_id: int
    number: int
    unit: Unit | None


@dataclass(frozen=True)
class TrialRefused:
    """The trial is not in the database; `number` is of the trial in its way, None at a limit."""

    reason: Refusal
    number: int | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    id: int
    number: int
    purpose: str
    state: TrialState
    rung: int | None
    architecture_hash: str
    architecture: str
    seed: int
    operator: str
    parents: tuple[int, ...]
    choices: Any
    space_version: int
    known_results: int
    cheap_values: Mapping[str, float]
    evidence: Mapping[str, Any] | None  # how measured costs were found: interval, word, what served
    values: Mapping[str, float]  # objectives at the highest finished rung; empty before the first
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error_kind: str | None
    error_text: str | None


@dataclass(frozen=True, kw_only=True)
class UnitResult:
    """A unit that ended, in the order of the study. `values` is None when it failed."""

    sequence: int
    trial_id: int
    number: int
    rung: int
    steps: int
    purpose: str
    seed: int
    architecture_hash: str
    architecture: str
    choices: Any
    cheap_values: Mapping[str, float]
    values: dict[str, float] | None
    failure: str | None
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class UnitSummary:
    """One rung of a trial as it stands, for people."""

    rung: int
    steps: int
    state: UnitState
    owner: str | None
    attempts: int
    seconds: float | None
    device: str | None
    checkpoint_uri: str | None
    checkpoint_sha256: str | None
    sequence: int | None
    values: Mapping[str, float]
    error_kind: str | None


@dataclass(frozen=True, kw_only=True)
class RankedTrial:
    """A trial with the objectives of its highest finished rung."""

    number: int
    purpose: str
    seed: int
    state: TrialState
    rung: int
    architecture_hash: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class TrialCount:
    purpose: str
    state: TrialState
    trials: int


@dataclass(frozen=True)
class Owner:
    """A process that holds leases that have not expired; `expires` is the latest of them."""

    name: str
    units: int
    expires: datetime


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial to add. `failure` is (kind, text) of a proposal that cannot be built: it is recorded as failed."""

    study_id: int
    number: int
    architecture_hash: str
    architecture: str
    seed: int
    purpose: str
    operator: str
    parents: tuple[int, ...]
    choices: Any
    known_results: int
    steps: int
    owner: str | None
    lease_seconds: float
    cheap_values: Mapping[str, float]
    evidence: Mapping[str, Any]
    limit: int | None
    failure: tuple[str, str] | None
    space_version: int | None
    token: str


@dataclass(frozen=True, kw_only=True)
class UnitOutcome:
    """What a unit gave: finite objectives, metrics at the end, a curve of (step, training loss), (uri, sha256)."""

    objectives: Mapping[str, float]
    metrics: Mapping[str, float]
    curve: Sequence[tuple[int, float]]
    checkpoint: tuple[str, str] | None
    seconds: float
    device: str
    last: bool  # no rung follows: the trial is complete
