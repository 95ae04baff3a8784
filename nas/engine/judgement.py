"""Stores how the finals of a study ended, so that every later reader finds it without computing it again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nas.config import factory
from nas.config.schema import SearchConfig
from nas.engine.finals import Finalist, Report
from nas.objectives.contract import Objective
from nas.report.depth import at_trial_depth
from nas.store import Store, Study
from searchspace.cost import Shape
from searchspace.model.build import cost


def keep(store: Store, study: Study, config: SearchConfig, objective: Objective, report: Report) -> None:
    """Add the verdict to the store, unless its newest one says the same."""
    document = _document(store, study, config, objective, report)
    before = store.verdict(study.id)
    if before is None or {**before.document, "sequence": None} != document | {"sequence": None}:
        store.add_verdict(study.id, document | {"sequence": store.mark(study.id).sequence})


def sentence(report: Report) -> str:
    """The verdict in one plain sentence."""
    if report.baseline is None or report.verdict is None:
        if report.transformer_won:
            return "Verdict: no difference. The winner is itself the plain Transformer of that size."
        return "Verdict: none, as the Transformer of the winner's size could not be trained."
    return "Verdict: " + report.verdict.sentence(
        f"{report.objective} on test data", f"trial {report.winner.number}", "the Transformer of its size"
    )


def _document(store: Store, study: Study, config: SearchConfig, objective: Objective, report: Report) -> dict[str, Any]:
    """Plain data that `nas.report.verdict` reads."""
    shape = factory.shape(config)
    return {
        "objective": report.objective,
        "direction": str(objective.direction),
        **{name: getattr(config.finals, name) for name in ("top", "seeds", "steps")},
        "finalists": [_entrant(each, at_trial_depth(store, study, each.number, shape)) for each in report.finalists],
        "baseline": report.baseline and _entrant(report.baseline, shape, is_baseline=True),
        "transformer_won": report.transformer_won,
        "verdict": report.verdict and {**asdict(report.verdict), "runs": list(report.verdict.runs)},
        "sentence": sentence(report),
    }


def _entrant(entrant: Finalist, shape: Shape, is_baseline: bool = False) -> dict[str, Any]:
    costs = cost(entrant.architecture, shape).numbers()
    return {
        "trial": entrant.number,
        "hash": entrant.architecture.hash,
        "architecture": entrant.architecture.text(),
        "validation": list(entrant.validation),
        "test": list(entrant.test),
        "trials": list(entrant.trials),
        "parameters": costs["parameters"],
        "flops": costs["flops"],
        "is_baseline": is_baseline,
    }
