"""nas studies: the studies of a database, or of the default folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage
from nas.cli.output import note, print_rows


@app.command()
@uncollected()
def studies(storage: Storage = None, as_json: AsJson = False) -> None:
    """List the studies of a database, or of every database in runs/, with their trials and what they search.

    Example: nas studies
    """
    rows = list(_rows(storage))
    print_rows(rows, as_json, empty="There is no study yet. Start one with `nas search FILE`.")


def _rows(storage: str | None) -> Iterator[dict[str, Any]]:
    import os

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
        with store, contextlib.ExitStack():
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
