"""nas delete: removes a study with everything that it recorded."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json
from searchspace.wording import plural


@app.command()
def delete(
    study: StudyName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep_checkpoints: Annotated[bool, typer.Option("--keep-checkpoints", help="Leave the checkpoints.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove STUDY from its database, with its checkpoints. Other studies of the database stay, with
    checkpoints that they share with it. If the database is a copy, the checkpoints of the original stay.

    Example: nas delete quickstart --yes
    """
    from nas import location
    from nas.errors import UsageError
    from nas.training import checkpoints
    from nas.upkeep import cleaning, places
    from nas.work import Checkpoint

    store, found = location.open_to_continue(study, storage)
    with store:
        trials = store.trials(found.id)
        kept = [] if keep_checkpoints else cleaning.checkpoint_files(store, found)
        folders = [] if keep_checkpoints else cleaning.folders(store, found)[0]
        about = f"{plural(len(trials), 'trial')} and {plural(len(kept), 'checkpoint')}"
        if not yes and not typer.confirm(f"Remove the study {study!r} with {about}?", err=True):
            raise UsageError("Nothing was removed.")
        store.delete_study(found.id)
    removed = 0
    for uri in kept:
        try:
            checkpoints.delete(Checkpoint(uri, ""))
            removed += 1
        except OSError as error:
            note(f"The checkpoint {uri} could not be removed: {error}")
    for folder in folders:
        places.forget(folder, study)
    if as_json:
        print_json({"study": study, "trials": len(trials), "checkpoints": removed})
    else:
        note(f"Removed the study {study!r}: {plural(len(trials), 'trial')}, {plural(removed, 'checkpoint')}.")
