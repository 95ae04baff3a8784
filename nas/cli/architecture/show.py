"""nas show: an architecture as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.architecture.compare import compare
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Batch, Length, Storage, architecture_argument, cost_shape
from nas.cli.output import note, print_json, say
from nas.errors import UsageError
from nas.report.tables import rendered

if TYPE_CHECKING:
    from searchspace.lines import Drawing

SHORT = 12  # digits of a hash that people are shown


@app.command()
@uncollected()
def show(
    architectures: Annotated[list[str], architecture_argument("ARCHITECTURE...", " Several are compared.")],
    length: Length = None,
    batch: Batch = 1,
    defaults: Annotated[bool, typer.Option("--defaults", help="Also show options that are at their default.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write an SVG picture to this file instead.", show_default=False)
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Draw an architecture as a tree with shapes and costs. For a trial, also show its history and scores. Several are
    shown side by side; lines that differ begin with `*`.

    Example: nas show transformer_decoder:small --length 512 --svg transformer.svg
    """
    from nas import location
    from nas.latency import evidence
    from nas.report import trials
    from searchspace.lines import kept

    if len(architectures) > 1:
        if svg is not None or defaults or batch != 1:
            raise UsageError("--svg, --defaults and --batch are for one architecture, but several are given.")
        compare(architectures, length, storage, as_json)
        return
    (architecture,) = architectures
    if svg is not None:
        _write_picture(architecture, svg, storage, length, batch)
        return
    history, drawing, found = None, None, None
    named = architecture
    if trial := location.trial_reference(architecture):
        store, study = location.open_existing(trial[0], storage)
        with store:
            history, stored = trials.story(store, study, trial[1]), store.trial(study.id, trial[1])
            named = location.trial_name(store, study.name, stored)
            if length is None and batch == 1 and not defaults:
                drawing = kept(store.drawing(study.id, stored.architecture_hash))
                found = stored.architecture_hash, stored.architecture
    if drawing is None or found is None:
        drawing, found = _drawn(architecture, storage, length, batch, defaults)
    hash, text = found
    if as_json:
        costs = drawing.cost.numbers()
        costs["expected_flops"] = costs["flops"]  # the name that scripts may still read
        print_json({"hash": hash, "architecture": text, "cost": costs, "halting": drawing.halting, "trial": history})
        return
    say(f"{hash[:SHORT]}\n{drawing.text()}")
    if drawing.halting:
        say(drawing.halting)
    if history:
        note("\n" + trials.story_text(history, named))
        if history["rungs"]:
            note(rendered(trials.shown_rungs(history)))
        if served := evidence.served(history["evidence"]):
            note("\nTuned kernels used for the latency:\n" + rendered(served))


def _drawn(
    name: str, storage: str | None, length: int | None, batch: int, defaults: bool
) -> tuple[Drawing, tuple[str, str]]:
    """The drawing of any architecture with its (hash, text), computed with torch."""
    from nas import architectures
    from searchspace.lines import Drawing
    from searchspace.model.drawing import rows
    from searchspace.model.halting import halting_note

    found = architectures.find(name, storage)
    shape = cost_shape(name, storage, length=length, batch=batch)
    lines = rows(found, shape, defaults=defaults)
    drawing = Drawing(length=shape.length, rows=lines, halting=halting_note(found, shape))
    return drawing, (found.hash, found.text(defaults=defaults))


def _write_picture(name: str, path: Path, storage: str | None, length: int | None, batch: int) -> None:
    from nas import architectures
    from nas.files import write_whole
    from searchspace.model import picture

    found = architectures.find(name, storage)
    shape = cost_shape(name, storage, length=length, batch=batch)
    write_whole(path, picture.svg(found, shape, title=name).encode())
    note(f"Wrote {path}.")
