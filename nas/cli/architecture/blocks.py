"""nas blocks: the blocks that architectures and spaces are written with."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import print_json, print_rows


def _names(incomplete: str) -> list[str]:
    """The names of blocks that begin with `incomplete`."""
    from searchspace.registry import block_types

    return [name for name in block_types() if name.startswith(incomplete)]


@app.command()
def blocks(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A block. Default: list all.", show_default=False, autocompletion=_names),
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="Only this role: model, block, norm or position.", show_default=False)
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Only this family, such as attention or recurrence.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the blocks, or describe NAME: formula, paper, options with defaults, capabilities and cost.

    Example: nas blocks sliding_window_attention
    """
    from searchspace import reference

    found = reference.entries(name, role=role, family=family)
    if as_json:
        print_json([entry.as_dict() for entry in found])
    elif name is not None:
        print("\n\n".join(map(reference.text, found)))
    else:
        rows = [
            {"name": entry.kind.name, "role": entry.kind.role, "family": entry.kind.family, "summary": entry.summary}
            for entry in found
        ]
        print_rows(rows, as_json=False, empty="No block has this role and family.")
