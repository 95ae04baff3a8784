"""nas export: an architecture of a study as a file, or as a folder for other tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, trial_option
from nas.cli.output import note, print_json, say
from nas.errors import NasError, UsageError


@app.command()
def export(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study with --best or --trial, STUDY:TRIAL, an exported file or folder, or a folder of `nas train`.",
            show_default=False,
        ),
    ],
    best: Annotated[bool, typer.Option("--best", help="The winner of the finals, or else the best trial.")] = False,
    trial: Annotated[int | None, trial_option("The trial to export: 17, or final-2.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A file that ends in .yaml, or a folder; - prints YAML. Default: STUDY-TRIAL.yaml, or STUDY-TRIAL.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="yaml, safetensors, python, huggingface, torch, aotinductor, onnx; separated by commas.")
    ] = "yaml",
    weights: Annotated[
        bool, typer.Option("--weights", help="Also write the trained weights; the same as adding safetensors.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Load a folder again with each tool, and compare it.")] = True,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Allowed difference of a measured latency, a fraction.")
    ] = 0.25,
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="The licence to name in the header and the card.")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write an architecture of STUDY as YAML that builds, or as a folder with weights, code and graphs for other tools.
    Lineage, recipe, metrics and environment are in the header, and in the model card of a folder.

    Example: nas export quickstart --best --format python,huggingface,onnx -o best
    """
    from nas.exports import files
    from nas.exports.formats.yaml import text

    formats = list(dict.fromkeys([*filter(None, format.split(",")), *(["safetensors"] if weights else [])]))
    printed = out is not None and str(out) == "-"
    if printed and formats != ["yaml"]:
        raise UsageError("Only YAML can be printed; for other formats and for weights give --out FILE.yaml, not -.")
    exported = None
    with files.chosen(study, storage, best=best, trial=trial) as found:
        if licence is not None:
            found = replace(found, origin={**found.origin, "licence": licence})
        if not printed:
            exported = files.written(found, study, out, formats, check=check, latency=tolerance)
    if exported is None:
        print_json({"trial": found.trial, "final": found.final, "text": text(found)}) if as_json else say(
            text(found), end=""
        )
        return
    is_folder = exported.path.is_dir()
    if as_json:
        wrong = {"wrong": exported.wrong, "checked": exported.checked is not None} if is_folder else {}
        print_json(
            {"trial": found.trial, "final": found.final, "files": [str(each) for each in exported.files], **wrong}
        )
    else:
        for each in exported.files:
            say(str(each))
        shown = exported.path / files.ARCHITECTURE if is_folder else exported.path
        note(
            f"{found.name.capitalize()}. Look at it with `nas show {shown}`, train it with `nas train {exported.path}`."
        )
    if exported.wrong:
        raise NasError(exported.failure)
