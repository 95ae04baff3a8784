"""nas curves: the learning curves of the trials of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName, trial_option
from nas.cli.output import note, print_json, print_rows, say
from nas.errors import UsageError
from nas.store.records import Trial
from searchspace.wording import plural

MARKS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # points that a line shows


@app.command()
def curves(
    study: StudyName,
    trial: Annotated[
        list[int] | None, trial_option("Only these trials, such as 17 or final-2. Default: the best; with --to, all.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The largest number of trials.")] = 10,
    every: Annotated[bool, typer.Option("--all", help="Every trial, in the order of their numbers.")] = False,
    to: Annotated[
        str | None,
        typer.Option(help="csv, tensorboard, mlflow or wandb, separated by commas. Each ended trial becomes a run."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder of --to. Default: STUDY-curves.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="With --to: go on until the search ends.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print the training loss of trials of STUDY over their steps. A trial that runs shows its steps so far.

    With --to, write curves and metrics for another tool. The same command again adds what is new.

    Example: nas curves quickstart --to tensorboard -o curves --follow
    """
    with uncollected():  # the imports alone: to follow a study takes hours
        from nas import location, report

    if to is None and (follow or out is not None):
        raise UsageError("--out and --follow need --to, such as --to tensorboard.")
    store, found = location.open_existing(study, storage)
    with store:
        chosen = [store.trial(found.id, number) for number in trial or ()]  # raises for one that does not exist
        if to is not None:
            _tell(
                store, found, to, out or Path(f"{found.name}-curves"), follow, [each.number for each in chosen], as_json
            )
            return
        if every and not chosen:
            chosen = store.trials(found.id, light=True)
        elif not chosen:
            chosen = report.best(store, found, None, limit)
            chosen += store.trials(found.id, states=("running",), light=True)
        different = {each.number: each for each in chosen}.values()
        lines = [(each, report.curve(store, found, each.number)) for each in different]
    if as_json:
        print_json([{"trial": each.number, "final": each.final, "curve": points} for each, points in lines])
    else:
        print_rows([_row(each, points) for each, points in lines], False, empty="No trial has a curve yet.")


def _tell(store: Any, study: Any, to: str, out: Path, follow: bool, trials: list[int], as_json: bool) -> None:
    """Write the trials for other tools, and say how many. Raises UsageError if `to` names no tool."""
    from nas.callbacks.of_study import told

    names = [name.strip() for name in to.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--to names the tools with commas, such as csv,tensorboard, but got {to!r}.")
    count = 0
    for number, name in told(store, study, names, out, follow=follow, trials=trials or None):
        note(f"{store.trial(study.id, number).name}: {name}")
        count += 1
    if as_json:
        print_json({"folder": str(out), "written": count})
    else:
        say(f"{plural(count, 'run')} written to {out}.")


def _row(trial: Trial, points: list[tuple[int, float | None]]) -> dict[str, Any]:
    values = [value for _, value in points if value is not None]
    first, last = (values[0], values[-1]) if values else (None, None)
    steps = points[-1][0] if points else 0
    return {"trial": trial.shown, "steps": steps, "first": first, "last": last, "training loss": _drawn(values)}


def _drawn(values: list[float]) -> str:
    """The values as a line of bars, the highest one at the top."""
    if not values:
        return ""
    count = min(WIDTH, len(values))
    chosen = [values[place * (len(values) - 1) // max(1, count - 1)] for place in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(MARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(MARKS[round((value - low) * scale)] for value in chosen)
