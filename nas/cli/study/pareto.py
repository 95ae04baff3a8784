"""nas pareto: the trials that no other trial beats in every objective."""

from __future__ import annotations

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import print_rows


@app.command()
def pareto(study: StudyName, storage: Storage = None, as_json: AsJson = False) -> None:
    """The Pareto front of STUDY over its objectives, at the highest rung that was reached, one trial a row.

    Example: nas pareto quickstart --json
    """
    from nas import location
    from nas.report import trials

    store, found = location.open_existing(study, storage)
    with store:
        rows = [trials.row(trial) for trial in trials.front(store, found)]
    print_rows(rows if as_json else trials.shown(rows), as_json, empty="No trial has finished yet.")
