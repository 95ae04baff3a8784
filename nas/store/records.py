"""The records of the store: plain values that need no connection and cross process boundaries.

`Trial` and `Unit` are what the store reads. Both have light fields, which every reading fills, and heavy ones, which
stay empty where a reading leaves them out. How a unit ended is a `nas.work.Outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from nas.numbers import address_of, final_of, name_of


class TrialState(StrEnum):
    """The state of a trial. The last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"


class UnitState(StrEnum):
    """The state of a unit. The last two are final."""

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
    """A study. `sequence` is the number of units that have ended."""

    id: int
    name: str
    created_at: datetime
    config: dict[str, Any]
    seed: int
    objectives: list[dict[str, Any]]
    data_hash: str | None
    version: str
    sequence: int
    ending: dict[str, Any] | None = None  # why the last search ended, see `nas.engine.ending`; None while it runs


@dataclass(frozen=True, kw_only=True)
class SpaceVersion:
    """The space of a study after it was changed `number` times."""

    number: int
    text: str
    created_at: datetime


MAIN = "main"  # the arm of the search itself
SEARCH = "search"  # the purpose of the trials of the search
FINAL = "final"  # that of the trials of the finals
PURPOSES = (SEARCH, FINAL)
RETRY = "retry"  # the operator of a trial that tries the architecture of a failed one again
TUNING = "tuning"  # the operator of the trials of the finals that choose options on validation data
LEASE_SECONDS = 60.0  # of a lease, unless it is said
LONGEST_LEASE = 1e9  # seconds, 31 years: a time after the year 9999 could not be read
FAILED_SECONDS = 1.0  # a failed unit counts as at least this long, so a search in which all fail still ends


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial. `values` are the objectives at its highest finished rung, empty before the first.

    parameters, step_flops: None for a proposal that could not be built.
    """

    id: int
    number: int  # see `nas.numbers`
    place: int = 0  # among the trials of its arm and purpose
    arm: str = MAIN
    purpose: str
    operator: str = ""
    seed: int
    state: TrialState
    rung: int | None
    steps: int | None = None  # training steps at that rung
    architecture_hash: str
    values: Mapping[str, float]
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_kind: str | None = None
    parameters: int | None = None
    step_flops: float | None = None  # FLOPs of one training step
    variant: str = ""  # how a trial of the finals differs: its length and tuned options
    architecture: str = ""  # the text; heavy, as is all that follows
    parents: tuple[int, ...] = ()
    choices: Any = None
    space_version: int = 0
    known_results: int = 0  # results of its arm that the strategy knew when it proposed this
    known_trials: int | None = None  # trials below this number were known to it; None: it knew of none
    cheap_values: Mapping[str, float] = field(default_factory=dict)  # known before training, by objective
    evidence: Mapping[str, Any] | None = None  # how measured costs were found: interval, method, implementations
    recipe: Mapping[str, Any] | None = None  # options that replace those of the study's recipe
    error_text: str | None = None

    @property
    def final(self) -> int | None:
        """Its number among the trials of the finals, from 1; None for a trial of the search."""
        return final_of(self.number)

    @property
    def name(self) -> str:
        """What people call it: trial 7, or final 2."""
        return name_of(self.number)

    @property
    def shown(self) -> int | str:
        """What a column of trials shows: 7, or final 2."""
        return self.number if self.final is None else self.name

    @property
    def address(self) -> str:
        """What follows STUDY: in commands, and what ends the address of its page: 7, or final-2."""
        return address_of(self.number)


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of a trial: a rung to train, or a probe.

    `owner` and `attempt` identify the holder of its lease: they go back with `finish` and `fail`. `values` are None
    until the unit has ended well.
    """

    id: int
    kind: UnitKind = UnitKind.TRAIN
    rung: int
    steps: int
    state: UnitState
    owner: str | None = None
    attempt: int = 0  # how often it was leased
    released: int = 0  # attempts that do not count: `attempt - released` is how often it was really tried
    seconds: float | None = None
    device: str | None = None
    checkpoint_uri: str | None = None
    checkpoint_sha256: str | None = None
    sequence: int | None = None  # place in the order in which the study's units ended, from 1
    values: Mapping[str, float] | None = None
    error_kind: str | None = None
    progress_step: int | None = None  # as of the last renewal of its lease, while it runs
    progress_loss: float | None = None
    progress_rate: float | None = None  # tokens per second
    progress_at: datetime | None = None
    expired: bool = False  # whether its lease has run out, by the database's clock, where that is read
    # Of its trial; filled in where a unit is read to be run or to be learned from.
    study_id: int = 0
    trial_id: int = 0
    number: int = 0
    place: int = 0
    arm: str = MAIN
    purpose: str = ""
    operator: str = ""
    seed: int = 0
    architecture_hash: str = ""
    architecture: str = ""
    choices: Any = None
    cheap_values: Mapping[str, float] = field(default_factory=dict)
    step_flops: float | None = None
    space_version: int = 0
    recipe: Mapping[str, Any] | None = None  # options that replace those of the study's recipe
    start_uri: str | None = None  # the checkpoint of the rung below
    start_sha256: str | None = None

    @property
    def final(self) -> int | None:
        """The number of its trial among the trials of the finals, from 1; None for a trial of the search."""
        return final_of(self.number)

    @property
    def later(self) -> bool:
        """Whether a machine outside the cluster found a value of the trial, however far its training was."""
        return self.kind is UnitKind.PROBE and self.rung > 0


@dataclass(frozen=True)
class TrialAdded:
    """The trial is in the database. `unit` is its first unit, leased if an owner was given; None if it failed."""

    trial_id: int
    number: int
    unit: Unit | None


@dataclass(frozen=True)
class TrialRefused:
    """The trial is not in the database. `number` is the trial that prevents it, None at a limit."""

    reason: Refusal
    number: int | None = None


@dataclass(frozen=True)
class TrialCount:
    """How many trials of a purpose are in a state."""

    purpose: str
    state: TrialState
    trials: int


@dataclass(frozen=True)
class Failed:
    """A trial that failed, and why."""

    number: int
    purpose: str
    error_kind: str | None

    @property
    def final(self) -> int | None:
        """Its number among the trials of the finals, from 1; None for a trial of the search."""
        return final_of(self.number)


@dataclass(frozen=True)
class Pace:
    """The units that ended well, from `start` to `steps`, and the seconds that they took together."""

    purpose: str
    rung: int
    start: int
    steps: int
    units: int
    seconds: float


@dataclass(frozen=True)
class Trained:
    """What the units of the search that ended have trained. A failed unit counts as if it had reached its end.

    flops: None if those of a trial are not known. all_seconds: as measured, with those
    of the finals.
    """

    steps: int
    flops: float | None
    device_seconds: float
    all_seconds: float


@dataclass(frozen=True)
class RungResult:
    """What a trial reached at one rung in one objective, and its size; None where the size is not known.

    step_flops: of one training step. flops: the objective of that name.
    """

    number: int
    steps: int
    value: float
    parameters: float | None
    step_flops: float | None
    flops: float | None


@dataclass(frozen=True)
class Mark:
    """A moment in the life of a study, for questions about what changed since.

    sequence: the number of units that had ended. time: by the database's clock; None asks by the sequence alone, which
    lists every stopped trial again.
    """

    sequence: int
    time: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"sequence": self.sequence, "time": self.time and self.time.isoformat()}


@dataclass(frozen=True)
class StoredVerdict:
    """How the finals of a study ended, as plain data."""

    created_at: datetime
    document: dict[str, Any]


@dataclass(frozen=True)
class Owner:
    """A process that holds leases that have not expired; `expires` is the latest of them."""

    name: str
    units: int
    expires: datetime


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One configuration on one problem: milliseconds with their samples, or the kind of failure with its message.

    problem, configuration: canonical JSON. source: hash of the code that ran. turns: equal for measurements whose
    samples were taken in turns. resources: what the compiled kernels use of a GPU at most, by name: `registers` of a
    thread, `spills` (values of 32 bits that a thread keeps in memory), `shared` memory (bytes of a program), `warps` of
    a program; None if it is not known. device: the key of the device; set only in measurements that were read.
    """

    operation: str
    problem: str
    dtype: str
    implementation: str
    configuration: str
    source: str
    milliseconds: float | None = None
    low: float | None = None
    high: float | None = None
    samples: tuple[float, ...] = ()
    failure: str | None = None
    message: str | None = None
    turns: str | None = None
    resources: Mapping[str, int] | None = None
    device: str = ""
