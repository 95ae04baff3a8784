"""What a search found: the Pareto table, the winner's tree, the finals and the verdict, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any

from nas.config import factory
from nas.engine.finals import Finalist, Report
from nas.engine.launch import Result
from nas.report import overview
from nas.report.depth import at_trial_depth
from nas.report.tables import rendered, short
from searchspace.model.build import cost
from searchspace.model.drawing import draw
from searchspace.model.halting import halting_note


def as_dict(result: Result) -> dict[str, Any]:
    """The result as plain data."""
    report = result.report
    found: dict[str, Any] = {
        "study": result.study.name,
        "pareto": overview.front_rows(result.store, result.study),
        "finals": None,
    }
    if report:
        found["finals"] = {
            "objective": report.objective,
            "winner": report.winner.number,
            "architecture": report.winner.architecture.text(),
            "entrants": _entrants(report, result),
            "verdict": report.verdict and asdict(report.verdict),
            "sentence": sentence(report),
        }
    return found


def as_text(result: Result) -> str:
    """The result as a person reads it."""
    front = overview.front_rows(result.store, result.study)
    if not front:
        return "No trial has finished, so there is nothing to show; `nas status` says why."
    parts = ["Pareto front of the search (validation data)", rendered(front)]
    report = result.report
    if report:
        finals = result.config.finals
        parts += [
            f"\nThe winner, trial {report.winner.number} ({report.winner.architecture.short})",
            *_tree(report.winner, result),
            f"\nFinals: {report.objective} after {finals.steps} steps, mean of {finals.seeds} seeds",
            rendered(_entrants(report, result)),
            "\n" + sentence(report),
        ]
    return "\n".join(parts)


def sentence(report: Report) -> str:
    """The verdict in one plain sentence."""
    if report.baseline is None or report.verdict is None:
        if report.transformer_won:
            return "Verdict: no difference. The winner is itself the plain Transformer of that size."
        return "Verdict: none, as the Transformer of the winner's size could not be trained."
    return "Verdict: " + report.verdict.sentence(
        f"{report.objective} on test data", f"trial {report.winner.number}", "the Transformer of its size"
    )


def _tree(winner: Finalist, result: Result) -> list[str]:
    """The winner's tree, and below it at which depth its FLOPs are counted, if it has halting blocks."""
    shape = at_trial_depth(result.store, result.study, winner.number, factory.shape(result.config))
    note = halting_note(winner.architecture, shape)
    return [draw(winner.architecture, shape), *([note] if note else [])]


def _entrants(report: Report, result: Result) -> list[dict[str, Any]]:
    entrants = [*report.finalists, *([report.baseline] if report.baseline else [])]
    return [_row(entrant, entrant is report.baseline, result) for entrant in entrants]


def _row(entrant: Finalist, is_baseline: bool, result: Result) -> dict[str, Any]:
    shape = factory.shape(result.config)
    if not is_baseline:
        shape = at_trial_depth(result.store, result.study, entrant.number, shape)
    costs = cost(entrant.architecture, shape).numbers()
    return {
        "entrant": "Transformer of the winner's size" if is_baseline else f"trial {entrant.number}",
        "validation": fmean(entrant.validation),
        "test": fmean(entrant.test),
        "test_seeds": " ".join(short(value) for value in entrant.test),
        "parameters": costs["parameters"],
        "flops": costs["flops"],
    }
