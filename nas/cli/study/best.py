"""nas best: prints the best trials of a study, or its Pareto front."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Limit, Storage, StudyName
from nas.cli.output import note, print_rows


@app.command()
@uncollected()
def best(
    study: StudyName,
    objective: Annotated[str | None, typer.Option(help="The objective to sort by; default: the study's first.")] = None,
    limit: Limit = 10,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="The whole Pareto front, of the trials that were trained longest.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print the best trials of STUDY, one a row. Trials that were trained longer come first. Baselines are marked.

    Example: nas best quickstart --limit 3
    """
    from nas import location
    from nas.report import summary, trials

    store, found = location.open_existing(study, storage)
    empty = "No trial has finished yet."
    with store:
        chosen = trials.front(store, found) if pareto else trials.best(store, found, objective, limit)
        rows = trials.rows(store, found, chosen)
        if pareto and not rows:
            empty = trials.why_no_front(store, found)
        waiting = summary.pending(store, found)
    print_rows(rows if as_json else trials.shown(rows), as_json, empty=empty)
    for each in waiting:
        note(each)
