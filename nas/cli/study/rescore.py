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
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with the trials of a search that runs, until it ends.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Find a further OBJECTIVE for every trained trial of STUDY, such as the latency on this machine.

    The values count for the Pareto front from then on. Trials that have one keep it, so the same command goes on where
    it was interrupted. The search file stays as it is: trials that a later search adds get the value from this command.
    With --follow a machine that is not in the cluster, such as a laptop, measures while the search runs elsewhere.

    Example: nas rescore quickstart --objective '{latency: {phase: decode, length: 512, name: laptop_ms}}'
    """
    from nas import location
    from nas.engine import rescoring
    from nas.errors import UsageError
    from nas.report.tables import reason
    from searchspace.errors import SpaceError
    from searchspace.language import documents

    try:
        spec = documents.parse(objective, "--objective").data
    except SpaceError as error:
        raise UsageError(f"--objective: {error}") from None
    store, found = location.open_to_continue(study, storage)
    with store:
        wanted = rescoring.wanted(found, spec)
        rows = [
            {
                "trial": each.trial,
                wanted.name: each.value,
                "note": "known before" if each.old else reason(each.reason) if each.reason else "",
            }
            for each in rescoring.rescore(store, found, wanted, note, follow=follow)
        ]
    print_rows(rows, as_json, empty="No trial of this study was trained.")
