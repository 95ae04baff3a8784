"""The choices of the tuned kernels that serve a model. They are stored with its latency and checked before its use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernels.dispatch import tuned
from kernels.dispatch.registry import Problem, operation
from nas.latency.runs import Run
from tuner import problems

Rows = tuple[dict[str, Any], ...]


def by(run: Run) -> Rows:
    """The choices that serve the operations of a run: one row per problem, with the choice, why, and a hash."""
    run.prepare()
    with tuned.asked() as found:
        run.all()
    return tuple(map(row, found))


def row(problem: Problem) -> dict[str, Any]:
    """One problem and the choice that serves it, as plain data."""
    known = operation(problem.operation)
    serves = tuned.explain(known, problem)
    source = known.implementations[serves.choice.implementation].source
    choice = {"choice": str(serves.choice), "why": serves.why, "source": source}
    return {**problems.as_row(problem), "device": problem.device, **choice}


def still(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether each problem is still served by the same choice with the same code."""
    return all(map(_still, rows))


def _still(then: Mapping[str, Any]) -> bool:
    try:
        known = operation(then["operation"])
        sizes, flags = (
            tuple((name, then[kind][name]) for name in (names or then[kind]))  # a database may not keep their order
            for kind, names in (("sizes", known.sizes), ("flags", known.flags))
        )
        serves = tuned.explain(known, Problem(known.name, then["device"], then["dtype"], sizes, flags)).choice
        return str(serves) == then["choice"] and then["source"] == known.implementations[serves.implementation].source
    except (ValueError, LookupError):  # the operation, or one of its sizes, does not exist any more
        return False


def together(*some: Iterable[dict[str, Any]]) -> Rows:
    """The rows of several models, each problem once."""
    return tuple({str({**each, "why": ""}): each for rows in some for each in rows}.values())
