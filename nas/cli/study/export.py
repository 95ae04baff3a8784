"""nas export: an architecture of a study as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json, say
from nas.errors import UsageError


@app.command()
def export(
    study: StudyName,
    best: Annotated[bool, typer.Option("--best", help="The winner of the finals, or else the best trial.")] = False,
    trial: Annotated[int | None, typer.Option(min=0, help="This trial.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file; - prints it. Default: STUDY-TRIAL.yaml.", show_default=False),
    ] = None,
    format: Annotated[str, typer.Option(help="Formats, separated by commas: yaml, safetensors.")] = "yaml",
    weights: Annotated[
        bool, typer.Option("--weights", help="Also write the trained weights; the same as adding safetensors.")
    ] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write an architecture of STUDY as YAML that builds, with lineage, recipe, metrics and environment in its header.

    Example: nas export quickstart --best --weights
    """
    from nas import location
    from nas.exports import files, winner
    from nas.exports.formats.yaml import text

    if best == (trial is not None):
        raise UsageError("Give either --best or --trial N.")
    formats = list(dict.fromkeys([*filter(None, format.split(",")), *(["safetensors"] if weights else [])]))
    printed = out is not None and str(out) == "-"
    if printed and formats != ["yaml"]:
        raise UsageError("Only YAML can be printed; for other formats and for weights give --out FILE.yaml, not -.")
    store, found = location.open_existing(study, storage)
    with store:
        number = winner.best_number(store, found) if trial is None else trial
        chosen = winner.winner(store, found, number)
        path = out or Path(f"{study}-{number}.yaml")
        written = [] if printed else files.write(chosen, path, formats)
    if printed:
        print_json({"trial": number, "text": text(chosen)}) if as_json else say(text(chosen), end="")
        return
    if as_json:
        print_json({"trial": number, "files": [str(each) for each in written]})
        return
    for each in written:
        say(str(each))
    note(f"Trial {number}. Look at it with `nas show {path}`, train it with `nas train {path}`.")
