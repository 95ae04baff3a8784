"""nas status: prints the state of a study."""

from __future__ import annotations

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import print_json, say


@app.command()
@uncollected()
def status(study: StudyName, storage: Storage = None, as_json: AsJson = False) -> None:
    """Print the state of STUDY: trials by state, running units, time left, the best trial, the verdict.

    It reads only the database. A trial or unit is running if a process holds its lease, interrupted if that process is
    gone, and paused if it waits for a process.

    Example: nas status quickstart --storage postgresql://host/nas
    """
    from nas import location, report

    store, found = location.open_existing(study, storage)
    with store:
        seen = report.status(store, found)
    print_json(seen.to_dict()) if as_json else say(seen.to_text())
