"""nas delete: removes a study with everything that it recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json


@app.command()
def delete(
    study: StudyName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="Leave the checkpoints.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove STUDY from its database, with its checkpoints. Other studies of the database stay.

    Example: nas delete quickstart --yes
    """
    from nas import location
    from nas.errors import UsageError
    from nas.training import checkpoints
    from nas.work import Checkpoint

    store, found = location.open_to_continue(study, storage)
    with store:
        trials = store.trials(found.id)
        if not yes and not typer.confirm(f"Remove the study {study!r} with {len(trials)} trials?", err=True):
            raise UsageError("Nothing was removed.")
        files = [
            Checkpoint(unit.checkpoint_uri, unit.checkpoint_sha256 or "")
            for trial in trials
            for unit in store.units(found.id, trial.number)
            if unit.checkpoint_uri
        ]
        store.delete_study(found.id)
    removed = 0
    for each in [] if keep_checkpoints else files:
        try:
            checkpoints.delete(each)
            removed += 1
        except OSError as error:
            note(f"The checkpoint {each.uri} could not be removed: {error}")
    if as_json:
        print_json({"study": study, "trials": len(trials), "checkpoints": removed})
    else:
        note(f"Removed the study {study!r}: {len(trials)} trials, {removed} checkpoints.")
