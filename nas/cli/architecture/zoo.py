"""nas zoo: lists the published architectures, and prints their files."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, zoo_names
from nas.cli.output import print_json, print_rows, say


@app.command()
def zoo(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The one to print. Default: list all.", show_default=False, autocompletion=zoo_names
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="base: as published. tiny: trains on any machine.")] = "base",
    as_json: AsJson = False,
) -> None:
    """List the published architectures with their sizes, or print the YAML file of NAME, to copy and change.

    `nas show NAME:SIZE` draws one with its costs, and `nas train NAME:SIZE` trains it.

    Example: nas zoo transformer_modern --size small > mine.yaml
    """
    from searchspace import zoo as published
    from searchspace.model.build import cost

    if name is not None:
        text = published.text(name) if size == published.BASE else published.load(name, size).text()
        print_json({"name": name, "size": size, "text": text}) if as_json else say(text, end="")
        return
    rows: list[dict[str, Any]] = []
    for each in published.names():
        sizes, parameters = published.sizes(each), cost(published.load(each)).parameters
        rest = {"sizes": sizes if as_json else " ".join(sizes), "description": published.description(each)}
        rows.append({"name": each, "parameters": parameters, **rest})
    print_rows(rows, as_json)
