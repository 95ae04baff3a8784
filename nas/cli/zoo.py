"""nas zoo: the published architectures."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, zoo_names
from nas.cli.output import print_json, print_rows

zoo_app = typer.Typer(help="The published architectures that come with the product.", no_args_is_help=True)
app.add_typer(zoo_app, name="zoo")


@zoo_app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Name, size and description of each.

    Example: nas zoo list
    """
    from searchspace import zoo
    from searchspace.build import cost

    rows = [
        {"name": name, "parameters": cost(zoo.load(name)).parameters, "description": zoo.description(name)}
        for name in zoo.names()
    ]
    print_rows(rows, as_json)


@zoo_app.command()
def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A name of the list.", show_default=False, autocompletion=zoo_names)
    ],
    as_json: AsJson = False,
) -> None:
    """The file of NAME, ready to be copied and changed.

    Example: nas zoo show transformer_modern > mine.yaml
    """
    from searchspace import zoo

    text = zoo.text(name)
    print_json({"name": name, "text": text}) if as_json else print(text, end="")
