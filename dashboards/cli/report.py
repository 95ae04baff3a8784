"""nas report: writes what a study found into one file."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json


class Format(StrEnum):
    """The form of a report."""

    HTML = "html"
    MARKDOWN = "markdown"


@app.command()
@uncollected()
def report(
    study: StudyName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "--out", "-o", metavar="FILE", help="The file to write. Default: STUDY.html or STUDY.md."
        ),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="html: one file. markdown: a file with a folder of SVG pictures. Default: markdown for a FILE that "
            "ends in .md or .markdown, else html.",
            show_default=False,
        ),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write a report of STUDY: figures, architectures, trials, the search file, the environment.

    The HTML file needs no network and no other file; open it with a double click, print it, or send it.

    Example: nas report quickstart -o report.html
    """
    # The threads that NumPy's OpenBLAS starts wait busily: without work, they took a sixth of the CPU time of a report.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dashboards.sent.write import default_path, form_of, write

    chosen = form_of(output) if form is None else form.value
    files = write(study, storage, output or default_path(study, chosen), chosen)
    if as_json:
        print_json({"files": [str(path) for path in files]})
    note(f"Wrote {files[0]}" + (f" and {len(files) - 1} pictures" if len(files) > 1 else "") + ".")
