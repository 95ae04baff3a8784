"""nas ask: a trial to evaluate by yourself."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName, storage_url
from nas.cli.output import note, print_json


@app.command()
def ask(
    study: StudyName,
    count: Annotated[int, typer.Option("--count", "-n", min=1)] = 1,
    lease: Annotated[float, typer.Option(min=1, help="Seconds until it may be given to another asker.")] = 3600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Units of STUDY to train yourself, leased to you; answer with `nas tell`. Exits with 1 when none is left.

    Example: nas ask quickstart --json > unit.json
    """
    from nas.study import open_study

    asked = open_study(storage_url(study, storage), study).ask(count, lease_seconds=lease)
    if as_json:
        print_json([each.as_dict() for each in asked])
    else:
        for each in asked:
            print(f"# trial {each.trial} rung {each.rung}: train to {each.steps} steps with seed {each.seed}")
            print(f"# answer: nas tell {study} {each.unit} --owner {each.owner} METRIC=VALUE ...")
            print(each.architecture.text(), end="")
    if not asked:
        note("There is nothing to do: the budget is spent, or all open trials are in other hands.")
        raise typer.Exit(1)
