"""A unit of work and its outcome: all that passes between the search and the machine that trains.

A unit trains one architecture from the last checkpoint up to a number of steps, and evaluates it; or it is a probe,
which scores the untrained model. It is plain data, so that it crosses a process or a cluster. A promotion is a new
unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from nas.numbers import name_of

if TYPE_CHECKING:
    from nas.documents import Documents

Kind = Literal["train", "probe"]

SHARE = 0.2  # of the cost of its training: what the evaluation of a unit costs at most during a search
PASSES = 3  # a training step costs this many evaluations of its batch
FEWEST = 4_096  # positions of an evaluation: fewer would say little


def evaluated(steps: int, rows: int) -> int:
    """How many held-out positions a unit of a search is evaluated on, at most, after `steps` of `rows` positions.

    It depends on the steps in all, so that trials of one level are compared on the same data. Finals have no limit.
    """
    return max(FEWEST, int(SHARE * PASSES * steps * rows))


class FailureKind(StrEnum):
    """Why a unit gave no result. Only a unit whose process ended is tried again: others would fail the same way."""

    OUT_OF_MEMORY = "out of memory"
    NOT_FINITE = "not finite"
    TOO_SLOW = "too slow"
    BUILD_ERROR = "build error"
    NO_VALUE = "no value"  # an objective has none for this architecture
    PROBE_ERROR = "probe error"  # an objective that scores the untrained model raised an error
    TASK_ERROR = "task error"
    WORKER_LOST = "worker lost"
    CRASHED = "crashed"  # the process that ran it ended by itself, as often as `limits.attempts` allows
    DISK_FULL = "disk full"  # a checkpoint could not be written: the search pauses, and the attempt does not count
    INFRASTRUCTURE = "infrastructure"  # Ray or a node failed: the attempt does not count, so no unit ends with this

    @property
    def retried(self) -> bool:
        """Whether the unit is tried again, mostly as often as `limits.attempts` allows."""
        return self in (FailureKind.WORKER_LOST, FailureKind.CRASHED) or self.uncounted

    @property
    def uncounted(self) -> bool:
        """Whether the unit is put back in the queue, and the attempt does not count."""
        return self in (FailureKind.INFRASTRUCTURE, FailureKind.DISK_FULL)


@dataclass(frozen=True)
class Failure:
    """A typed failure with the text a user needs (a traceback where the user's own code failed)."""

    kind: FailureKind
    message: str


@dataclass(frozen=True)
class Checkpoint:
    """A file of weights and optimiser state: where it is and the SHA-256 of its bytes."""

    uri: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Work:
    """One unit: everything a bare worker process needs."""

    study: str
    trial: int  # number within the study
    rung: int
    architecture: str  # text in the language
    task: Mapping[str, Any]  # {name: options}, as in the search file
    recipe: Mapping[str, Any]  # how to train, as in the search file
    steps: int  # train up to this many steps in all
    horizon: int  # the steps at which the learning rate has come down
    seed: int
    kind: Kind = "train"
    probes: tuple[Any, ...] = ()  # of a probe: the objectives to score, as in the search file
    start: Checkpoint | None = None  # continue from here; None starts from scratch
    checkpoint: str | None = None  # folder or fsspec URL to write to; None keeps nothing
    threads: int = 1
    device: str = "cpu"
    seconds: float | None = None  # a unit that takes longer has failed
    cache: str | None = None  # folder where prepared data is kept on a node
    task_source: str | None = None  # the text of the user's own task file, shipped along
    blocks: Mapping[str, str] = field(default_factory=dict)  # the texts of the user's files of blocks, by file name
    evaluated: int | None = None  # held-out positions to evaluate on, about; None is all
    tested: bool = True  # whether to evaluate on test data too, once training has reached the horizon
    metric: str | None = None  # the one that held-out documents are scored in; None is the first of the task

    @property
    def name(self) -> str:
        """What people call its trial: trial 7, or final 2."""
        return name_of(self.trial)


@dataclass(frozen=True)
class Progress:
    """How far a running unit is. loss: mean since the last report."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a unit gave: metrics and a checkpoint, or a failure."""

    trial: int
    rung: int
    kind: Kind = "train"
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)  # at the end, on held-out data; of a probe its scores
    evidence: Mapping[str, Any] = field(default_factory=dict)  # of a probe: how values were measured, by objective
    documents: Mapping[str, Documents] = field(default_factory=dict)  # of `validation` and `test`, at the horizon
    curve: tuple[tuple[int, float], ...] = ()  # (step, training loss)
    checkpoint: Checkpoint | None = None
    failure: Failure | None = None
    device: str = ""
