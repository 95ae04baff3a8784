"""nas blocks: the blocks that architectures and spaces are written with."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import print_json, print_rows, say
from nas.errors import UsageError

TEST = "test"  # in place of a block's name


def _names(incomplete: str) -> list[str]:
    """The names of blocks that begin with `incomplete`."""
    from searchspace.registry import block_types

    return [name for name in block_types() if name.startswith(incomplete)]


def _test(name: str | None, file: Path | None, as_json: bool) -> None:
    """Check the blocks of `file` and print the result. Raises UsageError unless both words are there."""
    if name != TEST or file is None:
        raise UsageError("To check blocks of your own, write `nas blocks test FILE`.")
    from nas.own.report import checked

    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the results, not for what the file prints
        found = checked(file)
    broken = [each for each in found if each.errors]
    if as_json:
        print_json([{**each.row, "errors": each.errors} for each in found])
    else:
        print_rows([each.row for each in found], as_json=False)
        for each in broken:
            where, error = next(iter(each.errors.items()))
            say(f"\n{each.block}: {each.promise}\n  {where}: {error}")
    if broken:
        raise typer.Exit(1)


@app.command()
def blocks(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A block, or `test` to check a file of your own blocks. Default: list all.",
            show_default=False,
            autocompletion=_names,
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="After `test`: the file to check.", show_default=False)
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

    `nas blocks test FILE` runs the file and checks its blocks: shapes, causality, padding, streaming, costs, precision.

    Example: nas blocks sliding_window_attention
    """
    if name == TEST or file is not None:
        _test(name, file, as_json)
        return
    from searchspace import reference

    found = reference.entries(name, role=role, family=family)
    if as_json:
        print_json([entry.as_dict() for entry in found])
    elif name is not None:
        say("\n\n".join(map(reference.text, found)))
    else:
        rows = [
            {"name": entry.kind.name, "role": entry.kind.role, "family": entry.kind.family, "summary": entry.summary}
            for entry in found
        ]
        print_rows(rows, as_json=False, empty="No block has this role and family.")
