"""A study from Python: ask for a trial, tell what came of it, read the best. For loops of your own, anywhere.

    study = nas.open_study("sqlite:///runs/mine.db", "mine")
    trial = study.ask()[0]
    study.tell(trial, {"bits_per_byte": 2.1})

What `ask` hands out is leased to the asker, so no two of them get the same; a lease that runs out is given to another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nas import location, report
from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine import leases
from nas.engine.proposer import Proposer
from nas.errors import NasError, UsageError
from nas.store import Store, Trial, Unit
from nas.store import Study as Record
from nas.work import FailureKind
from searchspace.model.architecture import Architecture

LEASE_SECONDS = 3600.0


class LeaseLost(NasError):
    """The unit is no longer the asker's: its lease ran out and another has it, or it was told already."""


@dataclass(frozen=True)
class Ask:
    """A unit somebody else evaluates: train `architecture` for `steps` in all with `seed`, then tell.

    A rung above 0 is a trial that goes on; `checkpoint` is where the rung below was kept, if it was.
    """

    trial: int
    rung: int
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
        """The unit as its asker sees it."""
        return cls(
            trial=unit.number,
            rung=unit.rung,
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
    """A study in a database. Close it, or use `with`."""

    def __init__(self, store: Store, record: Record):
        self.store, self.record = store, record
        self.config = SearchConfig(**record.config)
        space = factory.space(self.config)
        self._proposer = Proposer(
            store,
            record,
            space,
            factory.strategy(self.config, space),
            factory.scheduler(self.config),
            factory.objectives(self.config),
            factory.baselines(self.config),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self.store.close()

    @property
    def name(self) -> str:
        return self.record.name

    def ask(self, count: int = 1, *, lease_seconds: float = LEASE_SECONDS) -> list[Ask]:
        """Up to `count` units to evaluate, leased for `lease_seconds`; fewer, or none, when there is nothing to do.

        First come units that somebody left behind, then trials that go on to the next rung, then new ones, up to the
        budget's number of trials; its minutes are those of `nas search` alone. Raises ValueError for a count or a
        lease that is not positive.
        """
        if count < 1 or not lease_seconds > 0:
            raise ValueError(f"count and lease_seconds must be positive, but got {count} and {lease_seconds}.")
        asked: list[Ask] = []
        while len(asked) < count:
            owner = f"ask/{leases.owner_name()}"
            unit = self._next(owner, lease_seconds)
            if unit is None:
                break
            asked.append(Ask.of(unit, owner, self._proposer.architecture(unit)))
        return asked

    def _next(self, owner: str, seconds: float) -> Unit | None:
        gone = leases.dead(holder.name for holder in self.store.owners(self.record.id))
        left = self.store.lease(self.record.id, owner, 1, seconds, dead_owners=gone)
        if left:
            return left[0]
        trials = self.config.budget.trials
        self._proposer.absorb()
        return self._proposer.promotion(owner, seconds) or self._proposer.new_trial(owner, seconds, trials)

    def renew(self, asked: Ask, *, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Hold a unit for another `lease_seconds`; False when somebody else has it."""
        return bool(self.store.renew([asked.unit], asked.owner, lease_seconds))

    def tell(
        self,
        asked: Ask,
        metrics: Mapping[str, float] | None = None,
        *,
        failure: str | None = None,
        seconds: float = 0.0,
    ) -> bool:
        """Record `metrics`, or why there are none -> whether it was; not when the lease had run out and another has it.

        An objective that is not finite is recorded as a failure. `seconds` count as time trained. Raises UsageError
        when a metric that an objective needs is missing, or when both metrics and a failure are told.
        """
        if failure is not None:
            if metrics:
                raise UsageError("A unit has metrics or a failure, not both.")
            return self._fail(asked, FailureKind.TASK_ERROR, failure, seconds)
        values = self._proposer.values(asked.trial, asked.architecture, metrics or {})
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if bad:
            return self._fail(asked, FailureKind.NOT_FINITE, f"{bad[0]} came out as {values[bad[0]]}.", seconds)
        is_last = self._proposer.scheduler.is_last(asked.trial, asked.rung, asked.steps)
        sequence = self.store.finish(
            asked.unit,
            asked.owner,
            asked.attempt,
            values,
            dict(metrics or {}),
            last=asked.purpose != "search" or is_last,
            seconds=seconds,
        )
        return sequence is not None

    def _fail(self, asked: Ask, kind: FailureKind, text: str, seconds: float) -> bool:
        return self.store.fail(asked.unit, asked.owner, asked.attempt, kind.value, text, seconds).value == "failed"

    def best(self, limit: int = 1, objective: str | None = None) -> list[Trial]:
        """The best trials by an objective (by default the study's first), those of the highest rung first."""
        return report.best(self.store, self.record, objective, limit)

    def pareto(self) -> list[Trial]:
        """The trials of the highest rung that none beats in every objective."""
        return report.front(self.store, self.record)

    def architecture(self, trial: int) -> Architecture:
        """The architecture of a trial. Raises UsageError when there is no such trial."""
        return Architecture.parse(self.store.trial(self.record.id, trial).architecture)


def open_study(url: str | Path, name: str, config: SearchConfig | str | Path | None = None) -> Study:
    """The study `name` in the database at `url`; with a search file (or a config) it is made if it is not there."""
    from nas.config import searchfile
    from nas.engine import launch

    if config is None:
        store, record = location.open_existing(name, str(url))
        return _opened(store, lambda: record)
    if not isinstance(config, SearchConfig):
        config = searchfile.load(config)
    config = config.model_copy(update={"study": name, "storage": location.url(url)})
    store = launch.open_for(config)
    return _opened(store, lambda: launch.enter(store, config))


def _opened(store: Store, find: Callable[[], Record]) -> Study:
    try:
        return Study(store, find())
    except BaseException:
        store.close()
        raise


def resume(study: Study, owner: str, unit: int) -> Ask:
    """What another process asked for, as `nas tell` needs it. Raises LeaseLost when it is no longer leased so."""
    for leased in study.store.leased(study.record.id, owner):
        if leased.id == unit:
            return Ask.of(leased, owner, Architecture.parse(leased.architecture))
    raise LeaseLost(
        f"Unit {unit} is not leased to {owner!r}: the lease has run out and another has it, or it was told already, "
        "or `nas ask` gave another unit or owner. Nothing was recorded."
    )
