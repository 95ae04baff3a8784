"""A study from Python: ask for a trial, tell what came of it, read the best. For loops of your own, anywhere.

    study = nas.open_study("sqlite:///runs/mine.db", "mine")
    trial = study.ask()[0]
    study.tell(trial, {"bits_per_byte": 2.1})

What `ask` hands out is leased to the asker, so no two of them get the same; a lease that runs out is given to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nas import assembly, leases, overview
from nas.config import SearchConfig
from nas.errors import UsageError
from nas.proposer import Proposer
from nas.store import RankedTrial, Store, Unit, open_store
from nas.store import Study as Record
from nas.work import FailureKind
from searchspace.architecture import Architecture

LEASE_SECONDS = 3600.0


@dataclass(frozen=True)
class Ask:
    """A unit somebody else evaluates: train `architecture` for `steps` in all with `seed`, then tell."""

    trial: int
    rung: int
    steps: int
    seed: int
    architecture: Architecture
    unit: int
    attempt: int
    owner: str

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "architecture": self.architecture.text()}


class Study:
    """A study in a database."""

    def __init__(self, store: Store, record: Record):
        self.store, self.record = store, record
        self.config = SearchConfig(**record.config)
        space = assembly.space(self.config)
        self._proposer = Proposer(
            store,
            record,
            space,
            assembly.strategy(self.config, space),
            assembly.scheduler(self.config),
            assembly.objectives(self.config),
            assembly.baselines(self.config),
        )

    def ask(self, count: int = 1, *, lease_seconds: float = LEASE_SECONDS) -> list[Ask]:
        """Up to `count` units to evaluate, leased for `lease_seconds`; fewer, or none, when the budget is spent."""
        asked: list[Ask] = []
        while len(asked) < count:
            owner = f"ask/{leases.owner_name()}"
            unit = self._next(owner, lease_seconds)
            if unit is None:
                break
            asked.append(
                Ask(
                    unit.number,
                    unit.rung,
                    unit.steps,
                    unit.seed,
                    self._proposer.architecture(unit),
                    unit.id,
                    unit.attempt,
                    owner,
                )
            )
        return asked

    def _next(self, owner: str, seconds: float) -> Unit | None:
        left = self.store.lease(self.record.id, owner, 1, seconds)
        if left:
            return left[0]
        return self._proposer.promotion(owner, seconds) or self._proposer.new_trial(
            owner, seconds, self.config.budget.trials
        )

    def tell(
        self,
        asked: Ask,
        metrics: Mapping[str, float] | None = None,
        *,
        failure: str | None = None,
        seconds: float = 0.0,
    ) -> bool:
        """Record `metrics` (or why it failed); False when the lease had run out and somebody else has the unit.

        Raises UsageError when a metric that an objective needs is missing.
        """
        if failure is not None:
            kind = FailureKind.TASK_ERROR.value
            ending = self.store.fail(asked.unit, asked.owner, asked.attempt, kind, failure, seconds)
            return ending.value == "failed"
        objectives = self._proposer.objectives
        values = {o.name: o.evaluate(asked.architecture, metrics or {}) for o in objectives}
        rungs = self._proposer.scheduler.rungs
        sequence = self.store.finish(
            asked.unit,
            asked.owner,
            asked.attempt,
            values,
            dict(metrics or {}),
            last=asked.rung == len(rungs) - 1,
            seconds=seconds,
            device="",
        )
        return sequence is not None

    def best(self, limit: int = 1, objective: str | None = None) -> list[RankedTrial]:
        """The best trials by an objective; by default the study's first."""
        return overview.best_trials(self.store, self.record, objective, limit)

    def pareto(self) -> list[RankedTrial]:
        """The trials that none beats in every objective."""
        return overview.front(self.store, self.record)

    def architecture(self, trial: int) -> Architecture:
        """The architecture of a trial."""
        return Architecture.parse(self.store.trial(self.record.id, trial).architecture)


def open_study(url: str | Path, name: str, config: SearchConfig | str | Path | None = None) -> Study:
    """The study `name` in the database at `url`; with a search file (or a config) it is made if it is not there."""
    from nas import launch, searchfile

    if config is None:
        store = open_store(url, create=False)
        return Study(store, store.study(name))
    if not isinstance(config, SearchConfig):
        config = searchfile.load(config)
    config = config.model_copy(update={"study": name, "storage": str(url)})
    store = launch.open_for(config)
    return Study(store, launch.enter(store, config))


def resume(study: Study, owner: str, unit: int) -> Ask:
    """What another process asked for, as `nas tell` needs it. Raises UsageError when nothing is leased so."""
    for leased in study.store.leased(study.record.id, owner):
        if leased.id == unit:
            architecture = Architecture.parse(leased.architecture)
            return Ask(leased.number, leased.rung, leased.steps, leased.seed, architecture, unit, leased.attempt, owner)
    raise UsageError(f"No unit {unit} is leased to {owner!r}: its lease has run out, or it was told already.")
