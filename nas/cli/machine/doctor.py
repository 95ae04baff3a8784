"""nas doctor: is this machine ready?"""

from __future__ import annotations

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage
from nas.cli.output import print_rows


@app.command()
def doctor(storage: Storage = None, as_json: AsJson = False) -> None:
    """Check this machine: versions, device, Ray, disk, the database. Exits with 1 if it finds a problem.

    With a SQLite database it also asks SQLite to check the file, and what its rows refer to.

    Example: nas doctor --storage postgresql://host/nas
    """
    from nas import doctor

    findings = list(doctor.examine(storage))
    print_rows([finding.as_row() for finding in findings], as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
