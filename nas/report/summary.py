"""The result of a search as text and as plain data: its head, the Pareto table, the finals and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nas.latency import evidence
from nas.report import control, probes, trials
from nas.report.header import header
from nas.report.ranking import ranking
from nas.report.tables import rendered
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.finals.verdict import EntrantResult, Verdict
    from nas.store import Reader, Study


def to_dict(store: Reader, study: Study, finals: Verdict | None) -> dict[str, Any]:
    """The result of a search as plain data. finals: None if there were none."""
    compared = control.controls(store, study)
    return {
        "study": study.name,
        "header": header(store, study).to_dict(),
        "pareto": trials.rows(store, study, trials.front(store, study)),
        "pending": pending(store, study),
        "ranking": ranking(store, study).to_dict(),
        "probes": probes.to_dict(probes.probes(store, study)),
        "controls": [each.to_dict() for each in compared],
        "uncompared": control.uncompared(study, compared),
        "finals": finals and finals.to_dict(),
    }


def to_text(store: Reader, study: Study, finals: Verdict | None, draw: Callable[[EntrantResult], str]) -> str:
    """The result of a search as text. draw: returns a drawing of the winner."""
    begins = header(store, study).to_text()
    front = trials.rows(store, study, trials.front(store, study))
    if not front and not trials.best(store, study, limit=1):
        why = _command(store, study, "status", study.name)
        return f"{begins}\n\nNo trial has finished, so there is nothing to show; `{why}` says why."
    shown = rendered(trials.shown(front)) if front else trials.why_no_front(store, study)
    parts = [begins, "\nPareto front of the search (validation data)", shown]
    if waiting := pending(store, study):
        parts += ["", *waiting]
    if told := ranking(store, study).sentences():
        parts += ["", *told]
    if audited := probes.probes(store, study):
        parts += ["", *(each.sentence() for each in audited)]
    compared = control.controls(store, study)
    if told := [*(each.sentence() for each in compared), *control.uncompared(study, compared)]:
        parts += ["", *told]
    if finals:
        winner = finals.winner
        parts += [f"\nThe winner, trial {winner.trial} ({winner.hash[:12]})", draw(winner), ""]
        parts += of_finals(finals)
    elif found := without_result(store, study):
        parts += ["", found]
    return "\n".join(parts)


def pending(store: Reader, study: Study) -> list[str]:
    """How many trained trials wait for a value from a machine outside the cluster, one sentence per objective."""
    if not (some := evidence.left_to_machines(study.config)):
        return []
    trained = [each for each in trials.results(store, study) if each.values and each.state in trials.TRAINED]
    known = {(unit.number, unit.rung) for unit in store.results_since(study.id, light=True) if unit.later}
    found = []
    for rung, name, machine in some:
        if missing := sum((each.number, rung) not in known for each in trained):
            found.append(
                f"{name}: {plural(missing, 'trial')} wait{'s' if missing == 1 else ''} for the machine {machine}: "
                f"{_command(store, study, 'latency', study.name, '--machine', machine)}"
            )
    return found


def _command(store: Reader, study: Study, *words: str) -> str:
    from nas.location import command  # SQLAlchemy

    return command(store, study.name, *words)


def without_result(store: Reader, study: Study) -> str:
    """Why finals that were run have no result; "" if none were run."""
    failures = header(store, study).final_failures
    if not failures:
        return ""
    kinds = ", ".join(f"{len(numbers)} {kind}" for kind, numbers in failures.items())
    return f"No finalist has a result at the longest length, so there is no verdict; failed runs: {kinds}."


def of_finals(finals: Verdict) -> list[str]:
    """The table of the finals, remarks about it, and the verdict, as lines."""
    seeds = plural(finals.seeds, "seed")
    return [
        f"Finals: {finals.objective} on test data, mean of {seeds}; * is the winner, chosen on validation data",
        rendered(finals.rows()),
        *finals.notes(),
        "",
        finals.sentence,
    ]
