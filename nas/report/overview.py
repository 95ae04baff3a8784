"""The state of a study, read from its database: for `nas status` and for the dashboard."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nas.engine import leases
from nas.report import activity, probes, trials
from nas.report.activity import Activity, UnitProgress
from nas.report.control import Control, controls, uncompared
from nas.report.finals import verdict
from nas.report.forecasts import Eta, eta
from nas.report.header import Header, header
from nas.report.ranking import Ranking, ranking
from nas.report.summary import pending
from nas.report.tables import counted, duration, short
from nas.store import TrialState
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.finals.verdict import Verdict
    from nas.report.spending import Spending
    from nas.store import Owner, Reader, Study, Trial
    from nas.store.records import Failed

LISTED = 5  # trials that are named for each kind
LISTED_UNITS = 16  # units that are shown to people
PHASES = {
    Activity.INTERRUPTED: "interrupted: its process is gone; the same `nas search` command continues it",
    Activity.PAUSED: "paused: no unit runs now; if no search is at work, `nas search` or `nas ask` continues it",
}


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a study at one time. `nas.report.activity` defines running, interrupted and paused."""

    study: Study
    activity: Activity | None  # None before the first trial and after the last
    phase: str  # a sentence
    budget: int | None
    states: dict[str, int]  # trials of the search by their stored state
    arms: dict[str, int]  # trials of the search by arm
    activities: dict[str, int]  # trials that were started and have not ended, by activity
    finals: dict[str, int]  # trials of the finals by their stored state
    units: list[UnitProgress]  # that have not ended
    owners: list[Owner]  # processes that hold leases
    failures: dict[str, list[Failed]]  # by kind
    pending: list[str]  # values that machines outside the cluster have not measured yet, a sentence an objective
    header: Header
    eta: Eta | None
    front: int  # trials on the Pareto front
    best: Trial | None
    ranking: Ranking
    probes: list[probes.Probe]
    controls: list[Control]  # empty until the search has ended
    uncompared: list[str]  # why there is none for an arm, one sentence each
    verdict: Verdict | None

    @property
    def shown_states(self) -> dict[str, int]:
        """The trials of the search by state. Trials that were started and have not ended count by activity instead."""
        started = (TrialState.WAITING, TrialState.RUNNING)
        return {name: count for name, count in self.states.items() if name not in started} | self.activities

    @property
    def spending(self) -> Spending:
        """What the search has spent of its budget."""
        return self.header.spending

    @property
    def trained_seconds(self) -> float:
        """The time of all units that ended, summed over the workers."""
        return self.spending.trained_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        waiting = sum(each.activity is Activity.PAUSED for each in self.units)
        return {
            "study": self.study.name,
            "created_at": self.study.created_at.isoformat(),
            "phase": self.phase,
            "budget": self.budget,
            "objectives": self.study.objectives,
            "trials": self.states,
            "finals": self.finals,
            "units": {"waiting": waiting, "running": len(self.units) - waiting},  # the stored states
            "workers": [asdict(owner) | {"expires": owner.expires.isoformat()} for owner in self.owners],
            "failures": {kind: [trial.number for trial in failed] for kind, failed in self.failures.items()},
            "pending": self.pending,
            "trained_seconds": self.trained_seconds,
            "spending": self.spending.to_dict(),
            "header": self.header.to_dict(),
            "pareto": self.front,
            "best": self.best and trials.row(self.best),
            "activity": self.activity and self.activity.value,
            "activities": self.activities,
            "arms": self.arms,
            "progress": [unit.to_dict() for unit in self.units],
            "eta": self.eta and self.eta.to_dict(),
            "ranking": self.ranking.to_dict(),
            "probes": probes.to_dict(self.probes),
            "controls": [each.to_dict() for each in self.controls],
            "uncompared": self.uncompared,
            "verdict": self.verdict and self.verdict.to_dict(),
        }

    def to_text(self) -> str:
        """One subject a line."""
        of = f" of {self.budget}" if self.budget else ""
        lines = [
            ("study", f"{self.study.name}, created {self.study.created_at:%Y-%m-%d %H:%M} UTC"),
            ("state", self.phase),
            ("trials", f"{sum(self.states.values())}{of}: {counted(self.shown_states)}"),
        ]
        if len(self.arms) > 1:
            lines.append(("arms", counted(self.arms)))
        if self.finals:
            lines.append(("finals", counted(self.finals)))
        lines.append(("trained", f"{duration(self.trained_seconds)} over all workers"))
        if set(self.spending.planned) - {"trials"}:
            lines.append(("spent", self.spending.to_text()))
        lines += [("at work", worker_text(owner)) for owner in self.owners]
        lines += [("unit", _unit(unit)) for unit in self.units[:LISTED_UNITS]]
        if len(self.units) > LISTED_UNITS:
            lines.append(("", f"and {len(self.units) - LISTED_UNITS} more units"))
        if self.eta:
            lines.append(("eta", eta_text(self.eta)))
        lines += [("failed", f"{kind}: {len(failed)} ({_names(failed)})") for kind, failed in self.failures.items()]
        lines += [("pending", each) for each in self.pending]
        lines += [line for line in self.header.lines() if line[0] in ("seeds", "cut off")]
        if self.best:
            scores = ", ".join(f"{name} {short(value)}" for name, value in self.best.values.items())
            steps = plural(self.best.steps or 0, "step")
            lines.append(("best", f"{self.best.name} after {steps}: {scores}"))
            lines.append(("pareto", f"{plural(self.front, 'trial')} after {steps}"))
        if self.ranking.explained:
            lines.append(("size", self.ranking.explained))
        lines += [("rungs", each) for each in self.ranking.of_rungs()]
        lines += [("probe", each.sentence()) for each in self.probes]
        lines += [("control", each) for each in (*(each.sentence() for each in self.controls), *self.uncompared)]
        if self.verdict:
            old = f" ({self.verdict.outdated})" if self.verdict.outdated else ""
            lines.append(("verdict", self.verdict.sentence.removeprefix("Verdict: ") + old))
        return "\n".join(f"{name:<10}{text}" for name, text in lines)


def status(store: Reader, study: Study) -> Status:
    """The current state of `study`. The front takes longest, so another thread reads it at the same time."""
    with ThreadPoolExecutor(1) as other:
        return _status(store, study, other.submit(trials.best_and_front, store, study))


def _status(store: Reader, study: Study, found: Future[tuple[Trial | None, list[Trial]]]) -> Status:
    states: dict[str, dict[str, int]] = {"search": {}, "final": {}}
    counts = {(each.purpose, each.state.value): each.trials for each in store.counts(study.id)}
    for (purpose, state), count in counts.items():
        states.setdefault(purpose, {})[state] = count
    units = activity.progress(store, study)
    doing = activity.of_study(study, counts, units)
    failed = store.failures(study.id)
    compared = controls(store, study) if doing is None else []
    return Status(
        study=study,
        activity=doing,
        phase=PHASES[doing] if doing in PHASES else activity.state_of_study(study, counts, units),
        budget=study.config.get("budget", {}).get("trials"),
        states=states["search"],
        arms=store.arms(study.id, "search"),
        activities=_activities(states, units),
        finals=states["final"],
        units=units,
        owners=store.owners(study.id),
        failures=_by_kind(failed),
        pending=pending(store, study),
        header=header(store, study, sum(states["search"].values()), failed),
        eta=eta(store, study, units=units) if doing is Activity.RUNNING and study.config.get("scheduler") else None,
        ranking=ranking(store, study),
        probes=probes.probes(store, study),
        controls=compared,
        uncompared=uncompared(study, compared) if doing is None else [],
        verdict=verdict(store, study),
        best=found.result()[0],
        front=len(found.result()[1]),
    )


def eta_text(found: Eta) -> str:
    """The estimate as text: about 12 min to the finals."""
    return f"about {duration(found.seconds)} {'to the finals' if found.finals_follow else 'left'}"


def _activities(states: dict[str, dict[str, int]], units: list[UnitProgress]) -> dict[str, int]:
    """Trials of the search that were started and have not ended, by activity."""
    found = Counter(activity.by_trial(unit for unit in units if unit.final is None).values())
    started = states["search"].get(TrialState.RUNNING, 0) + states["search"].get(TrialState.WAITING, 0)
    found[Activity.PAUSED] += max(0, started - found.total())  # without a unit: they wait for the next rung
    return {each.value: found[each] for each in Activity if found[each]}


def _by_kind(failed: list[Failed]) -> dict[str, list[Failed]]:
    kinds: dict[str, list[Failed]] = {}
    for trial in failed:
        kinds.setdefault(trial.error_kind or "unknown", []).append(trial)
    return dict(sorted(kinds.items(), key=lambda item: -len(item[1])))


def _names(failed: list[Failed]) -> str:
    """The failed trials and finals as text: trial 0, 1, 2, 3, 4, ...; final 2."""
    searched = [str(trial.number) for trial in failed if trial.final is None]
    finals = [str(trial.final) for trial in failed if trial.final is not None]
    return "; ".join(
        f"{word} {', '.join(some[:LISTED])}{', ...' if len(some) > LISTED else ''}"
        for word, some in (("trial", searched), ("final", finals))
        if some
    )


def _unit(unit: UnitProgress) -> str:
    doing = unit.activity.value
    if unit.activity is not Activity.RUNNING or unit.step is None:
        return f"{unit.name}: {doing}"
    loss = "" if unit.loss is None else f", loss {unit.loss:.3f}"
    rate = "" if unit.tokens_per_second is None else f", {unit.tokens_per_second:,.0f} tokens/s"
    return f"{unit.name}: {doing}, step {unit.step}/{unit.steps}{loss}{rate}"


def worker_text(owner: Owner) -> str:
    """The line about a worker. An owner is named host/boot/pid/start/random, after ask/ if it is from `nas ask`."""
    asked, parts = owner.name.startswith("ask/"), owner.name.removeprefix("ask/").split("/")
    name = f"{parts[0]} process {parts[2]}" if len(parts) == 5 else owner.name
    units = plural(owner.units, "unit")
    gone = " (gone; its units are interrupted)" if not asked and leases.is_dead(owner.name) else ""
    return f"{name}{', by nas ask' if asked else ''}: {units}, lease until {owner.expires:%Y-%m-%d %H:%M:%S} UTC{gone}"
