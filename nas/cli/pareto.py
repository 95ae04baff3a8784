"""nas pareto: the trials that no other trial beats in every objective."""

from __future__ import annotations

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName, open_existing
from nas.cli.output import print_rows


@app.command()
def pareto(study: StudyName, storage: Storage = None, as_json: AsJson = False) -> None:
    """The Pareto front of STUDY over its objectives, at the highest rung that was reached, one trial a row.

    Example: nas pareto quickstart --json
    """
    from nas import overview

    store, found = open_existing(study, storage)
    print_rows(overview.front_rows(store, found), as_json, empty="No trial has finished yet.")
