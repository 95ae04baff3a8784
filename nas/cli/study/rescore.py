"""nas rescore: gives the trials of a study a further objective, without training them again."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_rows


@app.command()
def rescore(
    study: StudyName,
    objective: Annotated[
        str,
        typer.Option(
            metavar="OBJECTIVE",
            help="As in a search file: a name, or {name: {option: value}}. It must need no training.",
            show_default=False,
        ),
    ],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Add an OBJECTIVE to every trained trial of STUDY, such as the latency on this machine.

    The values count for the Pareto front from then on. Trials that have a value keep it, so the same command continues
    after an interrupt. The search file stays as it is: trials that a later search adds get the value from this command.
    `nas latency` does the same while the search runs elsewhere.

    Example: nas rescore quickstart --objective '{latency: {phase: decode, length: 512, name: laptop_ms}}'
    """
    from nas import location
    from nas.engine import rescoring
    from nas.report.tables import reason

    store, found = location.open_to_continue(study, storage)
    with store:
        wanted = rescoring.written(found, objective)
        rows = []
        for each in rescoring.rescore(store, found, wanted, note):
            why = "known before" if each.old else reason(each.reason) if each.reason else ""
            if not each.old:
                note(f"trial {each.trial}: {why or format(each.value, '.4g')}")
            rows.append({"trial": each.trial, wanted.name: each.value, "note": why})
    print_rows(rows, as_json, empty="No trial of this study was trained.")
