"""nas latency: a machine outside the cluster measures latencies for a study."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_rows


@app.command()
def latency(
    study: StudyName,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Measure all objectives that the search file leaves to this machine (`on: {machine: NAME}`).",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="Instead: an objective that the search file does not have, for trained trials (see `nas rescore`).",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Measure the trials that are there, and do not wait for the search to end.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Measure the trials of STUDY on this machine, such as a laptop or a board, until its search ends.

    It needs the study database and nothing else of the cluster. Each value is stored at once. The search learns from
    the objectives that its file leaves to this machine. If the machine goes away, the search goes on; the same command
    then measures what is missing, also after the end of the search.

    Example: nas latency quickstart --machine laptop --storage postgresql://user@host/nas
    """
    from nas import location
    from nas.engine import rescoring
    from nas.errors import UsageError
    from nas.report.tables import reason

    if (machine is None) == (objective is None):
        raise UsageError("Give either --machine or --objective.")
    store, found = location.open_to_continue(study, storage)
    with store:
        if machine is not None:
            some = rescoring.left_to(found, machine)
        else:
            some = [rescoring.Wanted(rescoring.written(found, objective or ""))]
        rows = []
        for each in rescoring.find(store, found, some, note, follow=not once):
            if not each.old:
                why = reason(each.reason) if each.reason else ""
                rows.append({"trial": each.trial, "objective": each.objective, "value": each.value, "note": why})
                note(f"trial {each.trial}: {each.objective} {why or format(each.value, '.4g')}")
    print_rows(rows, as_json, empty="No value was missing that this machine can find.")
