"""nas replay: proposes the trials of a study again from its log, and compares."""

from __future__ import annotations

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import print_json, say


@app.command()
def replay(study: StudyName, storage: Storage = None, as_json: AsJson = False) -> None:
    """Check that the strategies of STUDY propose the same trials again from its log. Exits with 1 if they do not.

    Example: nas replay quickstart
    """
    from nas.engine.replay import replay as replay_study
    from nas.location import open_existing

    store, found = open_existing(study, storage)
    with store:
        report = replay_study(store, found)
    print_json(report.as_dict()) if as_json else say(report.as_text())
    if not report.same:
        raise typer.Exit(1)
