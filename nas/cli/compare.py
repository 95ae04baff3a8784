"""nas compare: two architectures side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Storage
from nas.cli.output import print_json, print_rows


@app.command()
def compare(
    first: ArchitectureName,
    second: ArchitectureName,
    length: Annotated[int, typer.Option(min=1, help="Sequence length for costs.")] = 1024,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """How two architectures differ: what was changed, and what each costs.

    Example: nas compare transformer_decoder quickstart:17
    """
    from dataclasses import asdict

    from nas import architectures
    from searchspace.architecture import diff
    from searchspace.build import cost

    one, two = (architectures.find(name, storage) for name in (first, second))
    costs = [asdict(cost(each, length=length)) for each in (one, two)]
    changes = [{"where": each.path, **dict(zip((first, second), each.texts))} for each in diff(one, two)]
    rows = [{"cost": name, first: costs[0][name], second: costs[1][name]} for name in costs[0]]
    if as_json:
        print_json({"differences": changes, "costs": rows})
        return
    print_rows(changes, False, empty="They are the same architecture.")
    print_rows(rows, False)
