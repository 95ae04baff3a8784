"""nas show: an architecture as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Batch, Length, Storage, cost_shape
from nas.cli.output import note, print_json, say
from nas.report.tables import rendered


@app.command()
def show(
    architecture: ArchitectureName,
    length: Length = None,
    batch: Batch = 1,
    defaults: Annotated[bool, typer.Option("--defaults", help="Also show options that are at their default.")] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write an SVG picture to this file instead.", show_default=False)
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Draw ARCHITECTURE as a tree with shapes and costs. For a trial, also show its history and scores.

    Example: nas show transformer_decoder:small --length 512 --svg transformer.svg
    """
    from nas import architectures
    from nas.files import write_whole
    from nas.latency import evidence
    from nas.report import trials
    from searchspace.model import picture
    from searchspace.model.build import cost
    from searchspace.model.drawing import draw
    from searchspace.model.halting import halting_note

    found = architectures.find(architecture, storage)
    shape = cost_shape(architecture, storage, length=length, batch=batch)
    if svg is not None:
        write_whole(svg, picture.svg(found, shape, title=architecture).encode())
        note(f"Wrote {svg}.")
        return
    history = _history(architecture, storage)
    if as_json:
        text, costs = found.text(defaults=defaults), cost(found, shape).numbers()
        halting = halting_note(found, shape)
        costs["expected_flops"] = costs["flops"]  # the name that scripts may still read
        print_json({"hash": found.hash, "architecture": text, "cost": costs, "halting": halting, "trial": history})
        return
    say(f"{found.short}\n{draw(found, shape, defaults=defaults)}")
    if halting := halting_note(found, shape):
        say(halting)
    if history:
        note("\n" + trials.story_text(history))
        if history["rungs"]:
            note(rendered(trials.shown_rungs(history)))
        if served := evidence.served(history["evidence"]):
            note("\nTuned kernels used for the latency:\n" + rendered(served))


def _history(architecture: str, storage: str | None) -> dict[str, Any] | None:
    """The history of the trial; None if `architecture` is not a trial."""
    from nas.architectures import trial_reference
    from nas.location import open_existing
    from nas.report import trials

    reference = trial_reference(architecture)
    if reference is None:
        return None
    store, study = open_existing(reference[0], storage)
    with store:
        return trials.story(store, study, reference[1])
