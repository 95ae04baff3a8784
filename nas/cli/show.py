"""nas show: an architecture as a tree."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Storage
from nas.cli.output import print_json


@app.command()
def show(
    architecture: ArchitectureName,
    length: Annotated[int, typer.Option(min=1, help="Sequence length for shapes and costs.")] = 1024,
    batch: Annotated[int, typer.Option(min=1)] = 1,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Draw ARCHITECTURE as a tree, with shapes and costs a line.

    Example: nas show transformer_decoder --length 512
    """
    from dataclasses import asdict

    from nas import architectures
    from searchspace.build import cost
    from searchspace.cost import Shape
    from searchspace.drawing import draw

    found, shape = architectures.find(architecture, storage), Shape(batch=batch, length=length)
    if as_json:
        print_json({"hash": found.hash, "architecture": found.text(), "cost": asdict(cost(found, shape))})
    else:
        print(f"{found.short}")
        print(draw(found, shape))
