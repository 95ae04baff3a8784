"""The trials of a study: results, the best, the Pareto front, training curves, and details of one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.latency import evidence
from nas.numbers import address_of, name_of
from nas.report.activity import Activity, UnitProgress, by_trial, progress
from nas.report.tables import reason
from nas.store import TrialState

if TYPE_CHECKING:
    from nas.store import Mark, Reader, Study, Trial
    from searchspace.cost import Shape

TRAINED = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)  # a stopped trial has the values of its rung
UNENDED = (TrialState.WAITING, TrialState.RUNNING)
SEARCHED = ("search",)
BASELINE = "baseline"  # the operator of a trial that the search file names itself


@dataclass(frozen=True)
class Changes:
    """What changed in a study. mark: pass it to the next call of `changes`.

    trials: those that were added, continued or ended, without their architectures. A trial may be listed again
    although it did not change, but no change is omitted. units: all that have not ended.
    """

    mark: Mark
    trials: list[Trial]
    units: list[UnitProgress]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "mark": self.mark.to_dict(),
            "trials": [row(trial) for trial in self.trials],
            "units": [unit.to_dict() for unit in self.units],
        }


def results(store: Reader, study: Study, *, purposes: tuple[str, ...] = SEARCHED) -> list[Trial]:
    """All trials of these purposes by number, without their architectures; also those that have not ended."""
    return store.trials(study.id, purposes=purposes, light=True)


def changes(store: Reader, study: Study, since: Mark | None = None) -> Changes:
    """What changed since the mark of an earlier call; None lists everything."""
    mark = store.mark(study.id)  # before the reading: what comes in between is listed by the next call too
    return Changes(mark, store.trials(study.id, light=True, since=since), progress(store, study))


def best(store: Reader, study: Study, objective: str | None = None, limit: int | None = 10) -> list[Trial]:
    """The best trials of the search by one objective; None: the first of the study.

    Trials that were trained longer come first. Raises UsageError if the study has no such objective.
    """
    return store.best(study.id, objective, limit, states=TRAINED, purposes=SEARCHED, longest=True)


def front(store: Reader, study: Study, objectives: Sequence[str] | None = None) -> list[Trial]:
    """The Pareto front of the search, over the trials that were trained longest. objectives: all by default.

    Raises UsageError if the study has no such objective.
    """
    return store.pareto(study.id, objectives, states=TRAINED, purposes=SEARCHED, longest=True)


def best_and_front(store: Reader, study: Study) -> tuple[Trial | None, list[Trial]]:
    """(the first of `best`, or None; `front`). The front has a trial as good as the best, so the best is found fast."""
    found = front(store, study)
    if not found:
        return next(iter(best(store, study, None, 1)), None), found
    reached = found[0].values[study.objectives[0]["name"]]
    as_good = store.best(study.id, None, 1, states=TRAINED, purposes=SEARCHED, longest=True, reached=reached)
    return next(iter(as_good), found[0]), found  # a trial that was read a moment ago may have gone on since


def why_no_front(store: Reader, study: Study) -> str:
    """Why there is no trial on the front, as a sentence."""
    if not store.best(study.id, limit=1, states=TRAINED, purposes=SEARCHED):
        return "No trial has finished yet."
    return "None of the trials that were trained longest has a value of every objective."


def curve(store: Reader, study: Study, number: int) -> list[tuple[int, float | None]]:
    """(step, training loss) of trial `number` over all its rungs; a loss that was not finite is None."""
    return store.curve(study.id, number)


def at_trial_depth(store: Reader, study: Study, number: int, shape: Shape) -> Shape:
    """`shape` with the mean depth that the last finished rung of trial `number` measured; unchanged if there is none.

    Halting blocks count at this depth. The objective `flops` uses the same one, so every command prints the same number
    for the trial.
    """
    rung = store.trial(study.id, number).rung
    return shape if rung is None else shape.at_depth(store.metrics(study.id, number, rung))


def row(trial: Trial) -> dict[str, Any]:
    """A trial as plain data."""
    return {
        "trial": trial.number,
        **trial.values,
        "rung": trial.rung,
        "state": trial.state.value,
        "architecture": trial.architecture_hash[:12],
        "steps": trial.steps,
        "arm": trial.arm,
        "baseline": trial.operator == BASELINE,
        "final": trial.final,
    }


def rows(store: Reader, study: Study, some: Sequence[Trial]) -> list[dict[str, Any]]:
    """Trials as plain data, with their activity."""
    going = any(trial.state in UNENDED for trial in some)
    found = by_trial(progress(store, study)) if going else {}
    return [row(trial) | {"activity": _activity(trial, found)} for trial in some]


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows for people: a column for arms if there are several, one for steps if a rung does not always end at the same,
    and a mark for baselines if there is one.
    """
    arms = len({each["arm"] for each in rows}) > 1
    steps = len({(each["rung"], each["steps"]) for each in rows}) > len({each["rung"] for each in rows})
    optional = {name for name, wanted in (("arm", arms), ("steps", steps)) if wanted}
    marked = any(each["baseline"] for each in rows)
    hidden = {"final", "baseline", "activity", "arm", "steps"} - optional
    return [
        {name: value for name, value in each.items() if name not in hidden}
        | {"state": each["activity"] or each["state"]}
        | ({"note": "baseline" if each["baseline"] else ""} if marked else {})
        for each in rows
    ]


def story(store: Reader, study: Study, number: int) -> dict[str, Any]:
    """One trial as plain data: its origin, and the result of each of its units.

    Raises UsageError if there is no such trial.
    """
    trial = store.trial(study.id, number)
    open_units = [each for each in progress(store, study) if each.number == trial.number]
    activities = {(each.kind, each.rung): each.activity.value for each in open_units}
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
                "kind": unit.kind.value,
                **({"activity": found} if (found := activities.get((unit.kind.value, unit.rung))) else {}),
            }
            for unit in store.units(study.id, trial.number)
        ],
        "final": trial.final,
        "arm": trial.arm,
        "activity": _activity(trial, by_trial(open_units)),
    }


def shown_rungs(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The units of a `story` for a table. The state of a unit that has not ended is its activity."""
    return [
        {name: value for name, value in each.items() if name != "activity"}
        | {"state": each.get("activity", each["state"])}
        for each in told["rungs"]
    ]


def _activity(trial: Trial, found: Mapping[int, Activity]) -> str | None:
    """running, interrupted or paused; None for a trial that has ended."""
    if trial.state not in UNENDED:
        return None
    return found.get(trial.number, Activity.PAUSED).value


def story_text(told: Mapping[str, Any], trial: str | None = None) -> str:
    """A `story` in one line, followed by one line for each latency and for the failure.

    trial: the name of the trial in commands, if STUDY:NUMBER is not enough.
    """
    parents = ", ".join(f"trial {number}" for number in told["parents"])
    name = name_of(told["trial"])
    state = told["activity"] or told["state"]
    lines = [f"{told['study']} {name}: {state}; {told['operator']}{parents and f' of {parents}'}"]
    trial = trial or f"{told['study']}:{address_of(told['trial'])}"
    lines += [evidence.sentence(name, found, trial) for name, found in told["evidence"].items()]
    if told["error"]:
        lines.append(f"{told['error']['kind']}: {reason(told['error']['text'] or '')}")
    return "\n".join(lines)
