"""The finals of a study of an earlier version that stored no verdicts, read from their trials."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from nas import metrics
from nas.report.finals import FinalsResult, of_first_version
from nas.store import FINAL, TrialState

if TYPE_CHECKING:
    from nas.store import Reader, Study, Trial

SENTENCE = "An earlier version ran these finals. `{command}` runs them as they are run today."


def finals(store: Reader, study: Study) -> FinalsResult | None:
    """The result with the entrants, best first, and no verdict; None if the study has no such finals."""
    from nas.location import command  # SQLAlchemy

    if not store.arms(study.id, FINAL):
        return None
    trials = store.trials(study.id, states=(TrialState.COMPLETE,), purposes=(FINAL,))
    trials = [each for each in trials if not each.variant and each.operator == "finalist"]
    if not trials:
        return None
    steps = trials[-1].steps
    by_hash: dict[str, list[Trial]] = {}
    for each in trials:
        if each.steps == steps:
            by_hash.setdefault(each.architecture_hash, []).append(each)
    objective = study.objectives[0]
    sign = -1 if objective["direction"] == "maximize" else 1

    def rank(own: list[Trial]) -> tuple[int, float]:
        return -len(own), sign * fmean(each.values[objective["name"]] for each in own)

    ranked = sorted(by_hash.values(), key=rank)
    document = {
        "objective": objective["name"],
        "direction": objective["direction"],
        "top": len(ranked),
        "seeds": len(ranked[0]),
        "steps": steps,
        "finalists": [_entrant(store, study, own) for own in ranked],
        "baseline": None,
        "verdict": None,
        "sentence": SENTENCE.format(command=command(store, study.name, "verdict", study.name)),
        "sequence": study.sequence,
    }
    return of_first_version(document, study.created_at, "it was not stored")


def _entrant(store: Reader, study: Study, own: list[Trial]) -> dict[str, Any]:
    name = study.objectives[0]["name"]
    own = sorted(own, key=lambda each: each.seed)
    return {
        "trial": own[0].parents[0],
        "hash": own[0].architecture_hash,
        "architecture": own[0].architecture,
        "validation": [each.values[name] for each in own],
        "test": [_on_test(store, study, each, name) for each in own],
        "trials": [each.number for each in own],
        "parameters": 0,
        "flops": 0.0,
        "is_baseline": False,
    }


def _on_test(store: Reader, study: Study, trial: Trial, name: str) -> float:
    measured = metrics.lookup(store.metrics(study.id, trial.number, 0), metrics.on_test(name))
    return trial.values[name] if measured is None else measured
