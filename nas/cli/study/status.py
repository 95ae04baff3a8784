"""nas status: prints the state of a study, or lists the studies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, studies
from nas.cli.output import note, print_json, print_rows, say


@app.command()
@uncollected()
def status(
    study: Annotated[
        str | None,
        typer.Argument(metavar="STUDY", help="A study. Default: list all.", show_default=False, autocompletion=studies),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Print the state of STUDY: trials by state, running units, time left, the best trial, the verdict. Without STUDY,
    list the studies of a database, or of every database in runs/.

    It reads only the database. A trial or unit is running if a process holds its lease, interrupted if that process is
    gone, and paused if it waits for a process.

    Example: nas status quickstart --storage postgresql://host/nas
    """
    from nas import location, report

    if study is None:
        print_rows(list(_studies(storage)), as_json, empty="There is no study yet. Start one with `nas search FILE`.")
        return
    store, found = location.open_existing(study, storage)
    with store:
        seen = report.status(store, found)
    print_json(seen.to_dict()) if as_json else say(seen.to_text())


def _studies(storage: str | None) -> Iterator[dict[str, Any]]:
    """A row for each study of `storage`, or of every database in the default folder."""
    from nas import location
    from nas.errors import StoreError
    from nas.report.activity import progress, state_of_study
    from nas.store import open_reader

    given = storage or os.environ.get(location.VARIABLE)
    places = [given] if given else [f"sqlite:///{location.FOLDER}/{name}.db" for name in location.known_studies()]
    for place in places:
        try:
            store = open_reader(location.url(place))
        except StoreError as error:
            if given:
                raise
            note(str(error))
            continue
        with store:
            for study in store.studies():
                counts = {(each.purpose, each.state.value): each.trials for each in store.counts(study.id)}
                yield {
                    "study": study.name,
                    "created": study.created_at.isoformat(sep=" ", timespec="minutes"),
                    "trials": sum(trials for (purpose, _), trials in counts.items() if purpose == "search"),
                    "finals": sum(trials for (purpose, _), trials in counts.items() if purpose == "final"),
                    "objectives": ", ".join(str(each["name"]) for each in study.objectives),
                    "state": state_of_study(study, counts, progress(store, study)),
                    "storage": location.shown(place),
                }
