"""nas backup: copies a study database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import print_json, say


@app.command()
def backup(
    database: Annotated[
        str,
        typer.Argument(
            metavar="STORAGE", help="The study database: a SQLite file or postgresql://...", show_default=False
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file for the copy.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Copy the study database STORAGE to FILE, also while a search writes to it. PostgreSQL is copied with pg_dump.

    Example: nas backup runs/quickstart.db quickstart-copy.db
    """
    from nas.backup import backup as copy

    size = copy(database, file)
    print_json({"file": file, "bytes": size}) if as_json else say(f"{file}: {size:,} bytes")
