"""A study from Python: ask for trials, report their results, read the best. For training loops of your own.

    study = nas.open_study("sqlite:///runs/mine.db", "mine")
    trial = study.ask()[0]
    study.tell(trial, {"bits_per_byte": 2.1})

`ask` leases each unit to its caller, so no two callers get the same one. When a lease runs out the unit is given to
another caller.

Threads may share a study: while one of them asks or tells, the others wait. `renew` does not wait, because a strategy
may take longer to answer than a lease lasts.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nas import location, report
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import leases, session
from nas.engine.ending import end
from nas.engine.units import Units, kind_of_failure
from nas.errors import NasError, UsageError
from nas.metrics import told_problem
from nas.store import Store, Trial, Unit, UnitKind, UnitState
from nas.store import Study as Record
from nas.store.database import secrets
from nas.store.records import LONGEST_LEASE, SEARCH
from nas.work import Failure, FailureKind, Outcome
from searchspace.model.architecture import Architecture

LEASE_SECONDS = 3600.0
MOST_UNITS = 10_000  # of one call of `ask`: without a limit on trials, a large count would never end
BATCH = 100  # new trials that are proposed at once
ENDED = (UnitState.DONE, UnitState.FAILED)


class LeaseLost(NasError):
    """The unit is no longer leased to the caller: another owner has it, or its result was recorded already."""


@dataclass(frozen=True)
class Ask:
    """A unit for the caller to evaluate: train `architecture` to `steps` in all with `seed`, then `tell`.

    A rung above 0 continues a trial; `checkpoint` is where the rung below was kept, if it was. If `kind` is "probe",
    score the untrained model instead, and tell the values of the search's probe objectives by name.
    """

    trial: int
    rung: int
    kind: str
    steps: int
    seed: int
    architecture: Architecture
    purpose: str
    checkpoint: str | None
    unit: int
    attempt: int
    owner: str

    @classmethod
    def of(cls, unit: Unit, owner: str, architecture: Architecture) -> Ask:
        """The unit as its caller sees it."""
        return cls(
            trial=unit.number,
            rung=unit.rung,
            kind=unit.kind.value,
            steps=unit.steps,
            seed=unit.seed,
            architecture=architecture,
            purpose=unit.purpose,
            checkpoint=unit.start_uri,
            unit=unit.id,
            attempt=unit.attempt,
            owner=owner,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, the architecture as text."""
        return {**vars(self), "architecture": self.architecture.text()}


class Study:
    """A study in a database. Close it, or use it in a `with` statement.

    Threads may share it: only one of them asks or tells at a time.
    """

    def __init__(self, store: Store, record: Record, config: SearchConfig | None = None):
        """config: the search file that was read for this study, if one was; its parts are used again."""
        self.store, self.record = store, record
        self.config = SearchConfig.stored(record.config)
        if config is not None:
            self.config.keep_built(config.built)
        self._proposer = session.proposer(parts(self.config), store, record)
        self._units = Units(store, record, self._proposer, attempts=self.config.limits.attempts)
        # Of the proposer: two threads that read the log at once would tell its results twice. The same thread may take
        # it again, so a signal handler that tells while its thread asks does not wait for ever.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<Study {self.name!r} in {secrets.shown(self.store.database.url)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    @property
    def name(self) -> str:
        """The name of the study."""
        return self.record.name

    def ask(self, count: int = 1, *, lease_seconds: float = LEASE_SECONDS) -> list[Ask]:
        """Up to `count` units to evaluate, leased for `lease_seconds`; fewer, or none, if there is nothing to do. One
        call gives at most 10,000.

        Abandoned units come first, then trials that continue to their next rung, then new ones, as far as the budget
        goes. The budget's minutes apply to `nas search` only. If there is nothing to do and no unit runs, the search
        has ended: trials that wait for a promotion are stopped. Raises ValueError for a count below 1, and for
        a lease that is not positive or longer than `nas.store.records.LONGEST_LEASE`.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, but got {count!r}.")
        seconds = _lease(lease_seconds)
        with self._lock:
            return self._asked(min(int(count), MOST_UNITS), seconds)

    def _asked(self, count: int, seconds: float) -> list[Ask]:
        """As `ask`. If nothing is left, the search ends."""
        asked = self._leased(count, seconds)
        while not asked and self._is_idle():
            before = self._results()
            asked = self._leased(count, seconds)  # what another process told a moment ago may need more units
            if not asked and self._is_idle() and self._results() == before:
                self._end()
                break
        return asked

    def _results(self) -> int:
        """A number that grows with every unit that ends, here or in other processes."""
        return self.store.mark(self.record.id).sequence

    def _leased(self, count: int, seconds: float) -> list[Ask]:
        """Up to `count` units, leased to the caller. After an error or Ctrl-C none of them is leased."""
        leased: list[Unit] = []
        owners: list[str] = []  # of the units that are being leased
        try:
            while len(leased) < count:
                owners = [f"ask/{leases.owner_name()}" for _ in range(min(count - len(leased), BATCH))]
                if not (units := self._next(owners, seconds)):
                    break
                leased += units
            if any(unit.purpose == SEARCH for unit in leased):
                self._go_on()
            return [Ask.of(unit, unit.owner or "", self._proposer.architecture(unit)) for unit in leased]
        except BaseException:
            self._units.release_all([*owners, *(unit.owner or "" for unit in leased)])
            raise

    def _is_idle(self) -> bool:
        """Whether no unit waits or runs, here or in other processes."""
        return not self.store.open_units(self.record.id)

    def _go_on(self) -> None:
        """Forget the ending of an earlier search, such as one that its budget of minutes ended."""
        if self.store.study(self.name).ending is not None:
            self.store.update_study(self.record.id, ending=None)

    def _end(self) -> None:
        """Record that the search has ended, unless another process has done so."""
        if self.store.study(self.name).ending is None:
            end(self._proposer, self.config.budget)

    def _next(self, owners: Sequence[str], seconds: float) -> list[Unit]:
        """One abandoned unit or promotion, or new trials. Each has an owner of its own."""
        if unit := self._units.abandoned(owners[0], seconds):
            return [unit]
        self._proposer.absorb()
        if unit := self._proposer.promotion(owners[0], seconds):
            return [unit]
        return self._proposer.new_trials(owners, seconds, self.config.budget.trials)

    def renew(self, asked: Ask, *, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Hold a unit for another `lease_seconds`; False if another owner has it. It waits for no other thread.

        Raises ValueError for a lease as `ask` does.
        """
        return self._units.renew(asked.unit, asked.owner, _lease(lease_seconds))

    def tell(
        self,
        asked: Ask,
        metrics: Mapping[str, float] | None = None,
        *,
        failure: str | None = None,
        failure_kind: str | None = None,
        seconds: float = 0.0,
    ) -> bool:
        """Record `metrics`, or why there are none. False if nothing was recorded: the unit has a result already, or its
        lease has run out and another owner has it.

        failure_kind: such as "out of memory" (`nas.work.FailureKind`), which strategies learn from; by default "task
        error". After "worker lost" or "crashed" the unit is tried again, as often as `limits.attempts` allows.

        An objective that is not finite is recorded as a failure. `seconds` count as training time. Raises UsageError
        if a metric that an objective needs is missing, if a metric is not a number or has the name of a cost objective
        or of the runner (`run/...`, `training loss`), if both metrics and a failure are given, if there is no such
        kind of failure, or if an argument is of another type or `seconds` is not finite or below 0. `test/NAME` is the
        metric NAME on test data; tell both.
        """
        if failure is not None and metrics:
            raise UsageError("A unit has metrics or a failure, not both.")
        if failure is None and failure_kind is not None:
            raise UsageError("A kind of failure needs the failure too: say why the unit failed.")
        kind = kind_of_failure(failure_kind or FailureKind.TASK_ERROR)
        measured = self._checked(metrics or {}, asked.kind)
        trained = _number("`seconds`", seconds)
        if not 0 <= trained < math.inf:
            raise UsageError(f"`seconds` must be a finite number of at least 0, but got {seconds!r}.")
        if self._ended(asked):
            return False
        outcome = Outcome(
            trial=asked.trial,
            rung=asked.rung,
            kind="probe" if asked.kind == "probe" else "train",
            seconds=trained,
            metrics=measured,
            failure=None if failure is None else Failure(kind, failure),
        )
        with self._lock:
            return self._units.end(self._unit(asked), outcome).recorded

    def _checked(self, metrics: Mapping[str, float], kind: str) -> dict[str, float]:
        """`metrics` as numbers. Raises UsageError for one that the caller cannot tell."""
        stages = {each.name: each.stage for each in self._proposer.scores.objectives}
        reserved = {"cost", "probe", "later"} if kind == "train" else {"cost", "later"}
        for name in metrics:
            if problem := told_problem(name, metrics):
                raise UsageError(problem)
            if stages.get(name) in reserved:
                raise UsageError(
                    f"{name!r} is found by the search before training; tell the metrics of the trained model only."
                )
        return {name: _number(f"The metric {name!r}", value) for name, value in metrics.items()}

    def _ended(self, asked: Ask) -> bool:
        """Whether the unit has a result."""
        units = self.store.units(self.record.id, asked.trial)
        return any(each.id == asked.unit and each.state in ENDED for each in units)

    def _unit(self, asked: Ask) -> Unit:
        """The unit as the store knows it, held by the asker."""
        trial = self.store.trial(self.record.id, asked.trial)
        return Unit(
            id=asked.unit,
            kind=UnitKind(asked.kind),
            rung=asked.rung,
            steps=asked.steps,
            state=UnitState.RUNNING,
            owner=asked.owner,
            attempt=asked.attempt,
            study_id=self.record.id,
            trial_id=trial.id,
            number=trial.number,
            arm=trial.arm,
            purpose=trial.purpose,
            seed=trial.seed,
            architecture_hash=trial.architecture_hash,
            architecture=trial.architecture,
            cheap_values=trial.cheap_values,
        )

    def best(self, limit: int | None = 1, objective: str | None = None) -> list[Trial]:
        """The best trials by an objective (by default the study's first), those that trained longest first; all of them
        if the limit is None.

        Raises UsageError, with the nearest name, if the study has no such objective.
        """
        return report.best(self.store, self.record, objective, limit)

    def pareto(self) -> list[Trial]:
        """The Pareto front of the trials that trained longest."""
        return report.front(self.store, self.record)

    def architecture(self, trial: int) -> Architecture:
        """The architecture of a trial. Raises UsageError if there is no such trial."""
        return Architecture.parse(self.store.trial(self.record.id, trial).architecture)


def _number(what: str, value: Any) -> float:
    """`value`, perhaps a tensor or array with one element, as a float. Raises UsageError if it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise UsageError(f"{what} must be a number, but got {value!r}.") from None


def _lease(seconds: float) -> float:
    """`seconds` as Python's own float. Raises ValueError as `ask` says."""
    if not 0 < seconds <= LONGEST_LEASE:
        raise ValueError(f"lease_seconds must be above 0 and at most {LONGEST_LEASE:.0f}, but got {seconds!r}.")
    return float(seconds)


def open_study(url: str | Path, name: str, config: SearchConfig | str | Path | None = None) -> Study:
    """The study `name` in the database at `url`. With a search file or a config it is created if it is not there.

    Raises UsageError if there is no such study and no config, or the name is invalid, StoreError if there is no such
    database.
    """
    from nas.config import searchfile
    from nas.config.schema import STUDY_NAME
    from nas.engine import launch

    if not isinstance(name, str) or (config is not None and not re.fullmatch(STUDY_NAME, name)):
        raise UsageError(f"The name of a study has letters, digits, `.`, `_` and `-`, but got {name!r}.")
    if config is None:
        store, record = location.open_to_continue(name, location.url(url))
        return _opened(store, lambda: record)
    config = searchfile.loaded(config, "nas.open_study")
    config = config.model_copy(update={"study": name, "storage": location.url(url)})
    store, found = launch.opened(config)
    return _opened(store, lambda: launch.enter(store, found), found.config)


def _opened(store: Store, find: Callable[[], Record], config: SearchConfig | None = None) -> Study:
    try:
        return Study(store, find(), config)
    except BaseException:
        store.close()
        raise


def resume(study: Study, owner: str, unit: int) -> Ask:
    """The unit that another process asked for, as `nas tell` needs it. Raises LeaseLost if its lease is gone."""
    for leased in study.store.leased(study.record.id, owner):
        if leased.id == unit:
            return Ask.of(leased, owner, Architecture.parse(leased.architecture))
    raise LeaseLost(
        f"Unit {unit} is not leased to {owner!r}: the lease has run out and another process has it, or its result is "
        "recorded already, or `nas ask` gave another unit or owner. Nothing was recorded."
    )
