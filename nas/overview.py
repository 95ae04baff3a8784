"""How a study stands, read from its database: shared by `status`, `best`, `pareto` and the summary of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nas.reporting import short
from nas.store import Owner, RankedTrial, Store, Study, TrialState, UnitState

TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # a stopped trial has the values of its rung
SEARCHED = ("search",)


@dataclass(frozen=True)
class Status:
    """A study at a moment."""

    study: Study
    states: dict[str, int]  # trials of the search by state
    finals: dict[str, int]
    units: dict[str, int]  # waiting and running
    owners: list[Owner]
    trained_seconds: float
    best: RankedTrial | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "created_at": self.study.created_at,
            "objectives": self.study.objectives,
            "trials": self.states,
            "finals": self.finals,
            "units": self.units,
            "workers": [asdict(owner) for owner in self.owners],
            "trained_seconds": self.trained_seconds,
            "best": self.best and row(self.best),
        }

    def as_text(self) -> str:
        lines = [
            f"study     {self.study.name}, begun {self.study.created_at:%Y-%m-%d %H:%M} UTC",
            f"trials    {_counted(self.states)}",
        ]
        if self.finals:
            lines.append(f"finals    {_counted(self.finals)}")
        lines.append(f"units     {_counted(self.units)}; {self.trained_seconds / 60:.1f} minutes trained")
        for owner in self.owners:
            lines.append(f"at work   {owner.name}: {owner.units} units, lease until {owner.expires:%H:%M:%S} UTC")
        if self.best:
            scores = ", ".join(f"{name} {short(value)}" for name, value in self.best.values.items())
            lines.append(f"best      trial {self.best.number} at rung {self.best.rung}: {scores}")
        return "\n".join(lines)


def look(store: Store, study: Study) -> Status:
    """The study as its database has it now."""
    states: dict[str, dict[str, int]] = {"search": {}, "final": {}}
    for count in store.counts(study.id):
        states.setdefault(count.purpose, {})[count.state.value] = count.trials
    best = best_trials(store, study, None, 1)
    return Status(
        study=study,
        states=states["search"],
        finals=states["final"],
        units={"waiting": (units := store.open_units(study.id))[UnitState.QUEUED], "running": units[UnitState.RUNNING]},
        owners=store.owners(study.id),
        trained_seconds=store.trained_seconds(study.id),
        best=best[0] if best else None,
    )


def best_trials(store: Store, study: Study, objective: str | None, limit: int) -> list[RankedTrial]:
    """The best trials of the search by one objective, of the highest rung: lower ones were trained less."""
    return store.best(study.id, objective, limit, states=TRAINED, purposes=SEARCHED, highest_rung=True)


def front(store: Store, study: Study) -> list[RankedTrial]:
    """The Pareto front of the search, over the trials of the highest rung that was reached."""
    return store.pareto(study.id, states=TRAINED, purposes=SEARCHED, highest_rung=True)


def best_rows(store: Store, study: Study, objective: str | None, limit: int) -> list[dict[str, Any]]:
    """`best_trials` as rows for people and programs."""
    return [row(trial) for trial in best_trials(store, study, objective, limit)]


def front_rows(store: Store, study: Study) -> list[dict[str, Any]]:
    """`front` as rows for people and programs."""
    return [row(trial) for trial in front(store, study)]


def row(trial: RankedTrial) -> dict[str, Any]:
    """A trial as one row."""
    return {
        "trial": trial.number,
        **trial.values,
        "rung": trial.rung,
        "state": trial.state.value,
        "architecture": trial.architecture_hash[:12],
    }


def _counted(counts: dict[str, int]) -> str:
    parts: Sequence[str] = [f"{count} {name}" for name, count in counts.items() if count]
    return ", ".join(parts) or "none"
