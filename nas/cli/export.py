"""nas export: an architecture of a study as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName, open_existing
from nas.cli.output import note, print_json
from nas.errors import UsageError


@app.command()
def export(
    study: StudyName,
    best: Annotated[bool, typer.Option("--best", help="The winner of the finals, or else the best trial.")] = False,
    trial: Annotated[int | None, typer.Option(min=0, help="This trial.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default: STUDY-N.yaml; - prints it.")
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="The trained weights too, as safetensors beside it.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write an architecture of STUDY as YAML that builds, with lineage, recipe, metrics and environment in its header.

    Example: nas export quickstart --best --weights
    """
    from nas import export as exporting

    if best == (trial is not None):
        raise UsageError("Say which one: --best, or --trial N.")
    store, found = open_existing(study, storage)
    number = exporting.best_number(store, found) if trial is None else trial
    exported = exporting.export(store, found, number, weights=weights)
    path = out or Path(f"{study}-{number}.yaml")
    if str(path) == "-":
        print(exported.text)
        return
    written = exporting.write(exported, path)
    if as_json:
        print_json({"trial": number, "files": [str(each) for each in written]})
    else:
        for each in written:
            print(each)
        note(f"Trial {number}. Look at it with `nas show {path}`, train it with `nas train {path}`.")
