"""nas show: an architecture as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import LENGTH, ArchitectureName, AsJson, Batch, Length, Storage, usual_length
from nas.cli.output import note, print_json
from nas.report.tables import rendered


@app.command()
def show(
    architecture: ArchitectureName,
    length: Length = None,
    batch: Batch = 1,
    svg: Annotated[Path | None, typer.Option(help="Write a picture to this file instead.", show_default=False)] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Draw ARCHITECTURE as a tree, with shapes and costs a line; of a trial also what became of it.

    Example: nas show transformer_decoder:small --length 512 --svg transformer.svg
    """
    from nas import architectures
    from nas.exports.export import write_whole
    from nas.report import overview
    from searchspace.cost import Shape
    from searchspace.model import picture
    from searchspace.model.build import cost
    from searchspace.model.drawing import draw

    found = architectures.find(architecture, storage)
    length = length or usual_length(architecture, storage) or LENGTH
    shape = Shape(batch=batch, length=length)
    if svg is not None:
        write_whole(svg, picture.svg(found, shape, title=architecture).encode())
        note(f"Wrote {svg}.")
        return
    told = _told(architecture, storage)
    if as_json:
        print_json(
            {"hash": found.hash, "architecture": found.text(), "cost": cost(found, shape).numbers(), "trial": told}
        )
        return
    print(f"{found.short}\n{draw(found, shape)}")
    if told:
        note("\n" + overview.story_text(told))
        if told["rungs"]:
            note(rendered(told["rungs"]))
        if served := overview.served(told):
            note("\nTuned kernels that the latency was found with:\n" + rendered(served))


def _told(architecture: str, storage: str | None) -> dict[str, Any] | None:
    """The story of the trial, if it is one."""
    from nas.architectures import trial_reference
    from nas.location import open_existing
    from nas.report import overview

    reference = trial_reference(architecture)
    if reference is None:
        return None
    store, study = open_existing(reference[0], storage)
    with store:
        return overview.story(store, study, reference[1])
