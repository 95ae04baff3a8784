"""nas pareto: prints the Pareto front of a study."""

from __future__ import annotations

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_rows


@app.command()
@uncollected()
def pareto(study: StudyName, storage: Storage = None, as_json: AsJson = False) -> None:
    """Print the Pareto front of STUDY, one trial a row, of the trials that were trained longest. Baselines are marked.

    Example: nas pareto quickstart --json
    """
    from nas import location
    from nas.report import summary, trials

    store, found = location.open_existing(study, storage)
    with store:
        rows = trials.rows(store, found, trials.front(store, found))
        why = "" if rows else trials.why_no_front(store, found)
        waiting = summary.pending(store, found)
    print_rows(rows if as_json else trials.shown(rows), as_json, empty=why)
    for each in waiting:
        note(each)
