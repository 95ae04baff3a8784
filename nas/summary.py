"""What a search found: the Pareto table, the winner's tree, the finals and the verdict, for people and for programs."""

from __future__ import annotations

import io
from dataclasses import asdict
from statistics import fmean
from typing import Any

from rich.console import Console

from nas import assembly, overview
from nas.cli.output import table
from nas.finals import Finalist, Report
from nas.launch import Result
from nas.reporting import short
from searchspace.build import cost
from searchspace.drawing import draw


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
    parts = ["Pareto front of the search (validation data)", _rendered(overview.front_rows(result.store, result.study))]
    report = result.report
    if report:
        shape = assembly.shape(result.config)
        parts += [
            f"\nThe winner, trial {report.winner.number} ({report.winner.architecture.short})",
            draw(report.winner.architecture, shape),
            f"\nFinals: trained again for {result.config.finals.steps} steps with {result.config.finals.seeds} seeds",
            _rendered(_entrants(report, result)),
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


def _entrants(report: Report, result: Result) -> list[dict[str, Any]]:
    entrants = [*report.finalists, *([report.baseline] if report.baseline else [])]
    return [_row(entrant, entrant is report.baseline, result) for entrant in entrants]


def _row(entrant: Finalist, is_baseline: bool, result: Result) -> dict[str, Any]:
    costs = cost(entrant.architecture, assembly.shape(result.config))
    return {
        "entrant": "Transformer of the winner's size" if is_baseline else f"trial {entrant.number}",
        "validation": fmean(entrant.validation),
        "test": fmean(entrant.test),
        "seeds": " ".join(short(value) for value in entrant.test),
        "parameters": costs.parameters,
        "flops": costs.expected_flops,
    }


def _rendered(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "  no trial has finished"
    text = io.StringIO()
    Console(file=text, width=160, highlight=False).print(table(rows))
    return text.getvalue().rstrip()
