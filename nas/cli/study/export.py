"""nas export: an architecture of a study as a file, or as a folder for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage
from nas.cli.output import note, print_json, say
from nas.errors import NasError, UsageError

if TYPE_CHECKING:
    from nas.exports.winner import Winner

FILES = {"yaml", "safetensors"}  # formats of one file each, which need no folder


@app.command()
def export(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study with --best or --trial, STUDY:TRIAL, or an exported file or folder, or that of a training.",
            show_default=False,
        ),
    ],
    best: Annotated[bool, typer.Option("--best", help="The winner of the finals, or else the best trial.")] = False,
    trial: Annotated[int | None, typer.Option(min=0, help="This trial.", show_default=False)] = None,
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
        str, typer.Option(help="With commas: yaml, safetensors, python, huggingface, torch, onnx.")
    ] = "yaml",
    weights: Annotated[
        bool, typer.Option("--weights", help="Also write the trained weights; the same as adding safetensors.")
    ] = False,
    check: Annotated[bool, typer.Option(help="Load a folder again with each tool, and compare it.")] = True,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Of a measured latency in the check, a fraction.")] = 0.25,
    licence: Annotated[str | None, typer.Option("--licence", "--license", help="For the header and the card.")] = None,
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
    with _chosen(study, best, trial, storage) as found:
        if licence is not None:
            found = replace(found, origin={**found.origin, "licence": licence})
        name = f"{found.origin.get('study', Path(study).stem)}-{found.trial}"
        in_folder = not set(formats) <= FILES if out is None else _is_folder(out, formats)
        exported = None
        if printed:
            written = []
        elif in_folder:
            path = out or Path(name)
            exported = files.write_folder(found, path, formats, check=check, latency=tolerance)
            written = exported.files
        else:
            path = out or Path(f"{name}.yaml")
            written = files.write(found, path, formats)
    if printed:
        print_json({"trial": found.trial, "text": text(found)}) if as_json else say(text(found), end="")
        return
    if as_json:
        wrong = {} if exported is None else {"wrong": exported.wrong, "checked": exported.checked is not None}
        print_json({"trial": found.trial, "files": [str(each) for each in written], **wrong})
    else:
        for each in written:
            say(str(each))
        shown = path / files.ARCHITECTURE if exported is not None else path
        note(f"Trial {found.trial}. Look at it with `nas show {shown}`, train it with `nas train {path}`.")
    if exported is not None and exported.wrong:
        raise NasError("The export does not pass its check:\n  - " + "\n  - ".join(exported.wrong))


def _is_folder(out: Path, formats: list[str]) -> bool:
    """Whether `out` names a folder: it is one, or it has no ending and the formats need one."""
    from nas.exports.paths import ARCHITECTURE

    if out.suffix in (".yaml", ".yml", ".safetensors"):
        return False
    return not set(formats) <= FILES or (out.suffix == "" and (not out.is_dir() or (out / ARCHITECTURE).is_file()))


@contextmanager
def _chosen(study: str, best: bool, trial: int | None, storage: str | None) -> Iterator[Winner]:
    """The architecture to export, while its store is open."""
    from nas import location
    from nas.exports import winner

    named = location.trial_reference(study)
    if named is not None and not best and trial is None:
        study, trial = named
    elif Path(study).exists() and not best and trial is None:
        from nas.trained import recorded

        yield winner.of_record(recorded.find(study, storage))
        return
    if best == (trial is not None):
        raise UsageError("Give either --best or --trial N.")
    store, found = location.open_existing(study, storage)
    with store:
        number = winner.best_number(store, found) if trial is None else trial
        yield winner.winner(store, found, number)
