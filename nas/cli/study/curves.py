"""nas curves: the learning curves of the trials of a study."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import print_json, print_rows

MARKS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # points that a line shows


@app.command()
def curves(
    study: StudyName,
    trial: Annotated[list[int] | None, typer.Option(min=0, help="These trials; default: the best.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The largest number of trials.")] = 10,
    every: Annotated[bool, typer.Option("--all", help="Every trial, in the order of their numbers.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print the training loss of trials of STUDY over their steps. A trial that runs shows its steps so far.

    Example: nas curves quickstart --limit 3
    """
    from nas import location, report

    store, found = location.open_existing(study, storage)
    with store:
        if trial:
            numbers = list(trial)
        elif every:
            numbers = [each.number for each in store.trials(found.id)]
        else:
            numbers = [each.number for each in report.best(store, found, None, limit)]
            numbers += [each.number for each in store.trials(found.id) if each.state.value == "running"]
        lines = {number: curve(store, found, number) for number in dict.fromkeys(numbers)}
    if as_json:
        print_json([{"trial": number, "curve": points} for number, points in lines.items()])
    else:
        print_rows([_row(number, points) for number, points in lines.items()], False, empty="No trial has a curve yet.")


def curve(store: Any, study: Any, number: int) -> list[tuple[int, float | None]]:
    """The stored points, and of a running unit its last reported loss."""
    from nas import report
    from nas.store import UnitState

    points = list(report.curve(store, study, number))
    for unit in store.units(study.id, number):
        done = points[-1][0] if points else 0
        if unit.state is UnitState.RUNNING and unit.progress_step and unit.progress_step > done:
            points.append((unit.progress_step, unit.progress_loss))
    return points


def _row(number: int, points: list[tuple[int, float | None]]) -> dict[str, Any]:
    values = [value for _, value in points if value is not None]
    first, last = (values[0], values[-1]) if values else (None, None)
    steps = points[-1][0] if points else 0
    return {"trial": number, "steps": steps, "first": first, "last": last, "training loss": _drawn(values)}


def _drawn(values: list[float]) -> str:
    """The values as a line of bars, the highest one at the top."""
    if not values:
        return ""
    count = min(WIDTH, len(values))
    chosen = [values[place * (len(values) - 1) // max(1, count - 1)] for place in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(MARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(MARKS[round((value - low) * scale)] for value in chosen)
