"""nas clean: removes what a study no longer needs."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_rows


@app.command()
def clean(
    study: StudyName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Remove what STUDY no longer needs: checkpoints by its `keep`, and unfinished files.

    What a search may still need is kept, so the search may run meanwhile. Nothing in the database changes.

    Example: nas clean quickstart --dry-run
    """
    from nas import location
    from nas.upkeep import cleaning

    store, found = location.open_existing(study, storage)
    with store:
        removed = cleaning.clean(store, found, location.CACHE, dry_run=dry_run)
        _, others = cleaning.folders(store, found)
    for folder in others:
        note(f"{folder} is kept: its checkpoints belong to another database, and this one is its copy.")
    print_rows([vars(each) for each in removed], as_json, empty="There is nothing to remove.")
    if removed and not as_json:
        note(f"{'To be removed' if dry_run else 'Removed'}: {cleaning.summary(removed)}.")
