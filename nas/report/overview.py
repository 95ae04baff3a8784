"""How a study stands, read from its database: for `status`, `best`, `pareto`, `show` and the summary of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nas.engine import leases
from nas.latency.measured import LOADED
from nas.latency.served import shown
from nas.report.progress import reason
from nas.report.tables import duration, short
from nas.store import Owner, Store, Study, Trial, TrialState, UnitState

TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # a stopped trial has the values of its rung
SEARCHED = ("search",)
FAILURES = 1000  # failed trials that are looked at for the reasons
LISTED = 5  # trials that are named for each reason


@dataclass(frozen=True)
class Status:
    """A study at a moment."""

    study: Study
    phase: str
    budget: int | None
    states: dict[str, int]  # trials of the search by state
    finals: dict[str, int]
    units: dict[str, int]  # waiting and running
    owners: list[Owner]  # who holds leases; a process of this host may be gone all the same
    failures: dict[str, list[int]]  # kind -> numbers of trials
    trained_seconds: float
    front: int  # trials on the Pareto front
    best: Trial | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "created_at": self.study.created_at.isoformat(),
            "phase": self.phase,
            "budget": self.budget,
            "objectives": self.study.objectives,
            "trials": self.states,
            "finals": self.finals,
            "units": self.units,
            "workers": [asdict(owner) | {"expires": owner.expires.isoformat()} for owner in self.owners],
            "failures": self.failures,
            "trained_seconds": self.trained_seconds,
            "pareto": self.front,
            "best": self.best and row(self.best),
        }

    def as_text(self) -> str:
        of = f" of {self.budget}" if self.budget else ""
        lines = [
            f"study     {self.study.name}, begun {self.study.created_at:%Y-%m-%d %H:%M} UTC",
            f"state     {self.phase}",
            f"trials    {sum(self.states.values())}{of}: {_counted(self.states)}",
        ]
        if self.finals:
            lines.append(f"finals    {_counted(self.finals)}")
        if any(self.units.values()):
            lines.append(f"units     {_counted(self.units)}")
        lines.append(f"trained   {duration(self.trained_seconds)} over all workers")
        lines += [f"at work   {_worker(owner)}" for owner in self.owners]
        for kind, numbers in self.failures.items():
            named = ", ".join(map(str, numbers[:LISTED])) + (", ..." if len(numbers) > LISTED else "")
            lines.append(f"failed    {kind}: {len(numbers)} (trial {named})")
        if self.best:
            scores = ", ".join(f"{name} {short(value)}" for name, value in self.best.values.items())
            lines.append(f"best      trial {self.best.number} at rung {self.best.rung}: {scores}")
            lines.append(f"pareto    {self.front} {'trial' if self.front == 1 else 'trials'} at that rung")
        return "\n".join(lines)


def look(store: Store, study: Study) -> Status:
    """The study as its database has it now."""
    states: dict[str, dict[str, int]] = {"search": {}, "final": {}}
    for count in store.counts(study.id):
        states.setdefault(count.purpose, {})[count.state.value] = count.trials
    best = best_trials(store, study, None, 1)
    units, owners = store.open_units(study.id), store.owners(study.id)
    return Status(
        study=study,
        phase=_phase(states, sum(units.values()), owners),
        budget=study.config.get("budget", {}).get("trials"),
        states=states["search"],
        finals=states["final"],
        units={"waiting": units[UnitState.QUEUED], "running": units[UnitState.RUNNING]},
        owners=owners,
        failures=_failures(store, study),
        trained_seconds=store.trained_seconds(study.id),
        front=len(front(store, study)),
        best=best[0] if best else None,
    )


def _phase(states: Mapping[str, Mapping[str, int]], open_units: int, owners: list[Owner]) -> str:
    if any(not leases.is_dead(owner.name) for owner in owners):
        return "in the finals" if states["final"] else "searching"
    if open_units:
        return "interrupted: the same `nas search` command goes on"
    if not states["search"]:
        return "not begun"
    if states["search"].get(TrialState.RUNNING):
        return "nobody is at work: trials wait at their rungs for `nas search` or `nas ask`"
    return "ended"


def _failures(store: Store, study: Study) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for trial in store.trials(study.id, states=(TrialState.FAILED,), limit=FAILURES):
        kinds.setdefault(trial.error_kind or "unknown", []).append(trial.number)
    return dict(sorted(kinds.items(), key=lambda item: -len(item[1])))


def best_trials(store: Store, study: Study, objective: str | None, limit: int) -> list[Trial]:
    """The best trials of the search by one objective, those of the highest rung first: lower ones were trained less."""
    return store.best(study.id, objective, limit, states=TRAINED, purposes=SEARCHED, highest_rung=True)


def front(store: Store, study: Study) -> list[Trial]:
    """The Pareto front of the search, over the trials of the highest rung that was reached."""
    return store.pareto(study.id, states=TRAINED, purposes=SEARCHED, highest_rung=True)


def best_rows(store: Store, study: Study, objective: str | None, limit: int) -> list[dict[str, Any]]:
    """`best_trials` as rows for people and programs."""
    return [row(trial) for trial in best_trials(store, study, objective, limit)]


def front_rows(store: Store, study: Study) -> list[dict[str, Any]]:
    """`front` as rows for people and programs."""
    return [row(trial) for trial in front(store, study)]


def row(trial: Trial) -> dict[str, Any]:
    """A trial as one row."""
    return {
        "trial": trial.number,
        **trial.values,
        "rung": trial.rung,
        "state": trial.state.value,
        "architecture": trial.architecture_hash[:12],
    }


def story(store: Store, study: Study, number: int) -> dict[str, Any]:
    """One trial: where it comes from and what became of each of its rungs."""
    trial = store.trial(study.id, number)
    return {
        "study": study.name,
        "trial": trial.number,
        "purpose": trial.purpose,
        "state": trial.state.value,
        "operator": trial.operator,
        "parents": list(trial.parents),
        "seed": trial.seed,
        "error": trial.error_kind and {"kind": trial.error_kind, "text": trial.error_text},
        "evidence": dict(trial.evidence or {}),
        "rungs": [
            {
                "rung": unit.rung,
                "steps": unit.steps,
                "state": unit.state.value,
                **(unit.values or {}),
                "seconds": unit.seconds,
            }
            for unit in store.units(study.id, number)
        ],
    }


def story_text(told: Mapping[str, Any]) -> str:
    """`story` in a line, and the failure in another."""
    parents = ", ".join(f"trial {number}" for number in told["parents"])
    lines = [
        f"{told['study']} trial {told['trial']}: {told['state']}; {told['operator']}{parents and f' of {parents}'}"
    ]
    lines += [_found(name, each, told) for name, each in told["evidence"].items()]
    if told["error"]:
        lines.append(f"{told['error']['kind']}: {reason(told['error']['text'] or '')}")
    return "\n".join(lines)


def _found(name: str, each: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """How a latency was found, and the command that looks again."""
    checked = each["cross_check"]
    within = f", predictions within {checked['error']:.1%} of {checked['of']} measured" if checked else ""
    load = f", at {each['load']:.2f} times the load of quiet times" if (each["load"] or 1) > LOADED else ""
    setting = " ".join(f"--{option} {each[option]}" for option in ("phase", "length", "batch", "threads"))
    return (
        f"{name} {each['milliseconds']:.4g} ms, {each['low']:.4g} to {each['high']:.4g}, {each['kind']} on "
        f"{each['device']['name']}{within}{load}; again: nas profile {told['study']}:{told['trial']} {setting}"
    )


def served(told: Mapping[str, Any]) -> list[dict[str, str]]:
    """Which choices of the tuned kernels served the latencies of a trial, each problem once."""
    rows = [row for each in told["evidence"].values() for row in each["served"]]
    return list({str(row): row for row in shown(rows)}.values())


def _worker(owner: Owner) -> str:
    """host/boot/pid/start/random, with ask/ before it for somebody who asked."""
    asked, parts = owner.name.startswith("ask/"), owner.name.removeprefix("ask/").split("/")
    name = f"{parts[0]} process {parts[2]}" if len(parts) == 5 else owner.name
    units = f"{owner.units} {'unit' if owner.units == 1 else 'units'}"
    gone = " (gone; its units are taken over)" if not asked and leases.is_dead(owner.name) else ""
    return f"{name}{', by nas ask' if asked else ''}: {units}, lease until {owner.expires:%Y-%m-%d %H:%M:%S} UTC{gone}"


def _counted(counts: Mapping[str, int]) -> str:
    counted = Counter(counts)
    return ", ".join(f"{counted[name]} {name}" for name in counts if counted[name]) or "none"
