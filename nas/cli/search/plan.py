"""nas plan: prints what a search would do, without doing it."""

from __future__ import annotations

from nas.cli.app import app
from nas.cli.options import AsJson, Changes, SearchFile, Storage
from nas.cli.output import print_json, say


@app.command()
def plan(file: SearchFile, changes: Changes = None, storage: Storage = None, as_json: AsJson = False) -> None:
    """Check FILE and print what would run: the size of the space, the baselines, the cost of a trial, the time.

    It rejects what `nas search` rejects, and a space without a sample that can be trained.

    Example: nas plan examples/quickstart.yaml
    """
    from nas.config.found import find_search
    from nas.engine import planning

    made = planning.plan(find_search(file, storage, changes or ()))
    print_json(made.as_dict()) if as_json else say(made.as_text())
