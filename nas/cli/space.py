"""nas space: what a space of architectures holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import note, print_json, print_rows

if TYPE_CHECKING:
    from searchspace.space import Space

space_app = typer.Typer(help="Look into a space of architectures.", no_args_is_help=True)
app.add_typer(space_app, name="space")

SpaceFile = Annotated[
    Path, typer.Argument(help="A space file, or a search file that holds a space.", show_default=False)
]
Length = Annotated[int, typer.Option(min=1, help="Sequence length for constraints.")]


def _load(path: Path, length: int = 1024) -> Space:
    from searchspace import documents
    from searchspace.space import Space

    written = documents.load(path, tags=("!choice", "!int", "!float", "!same")).data
    if isinstance(written, dict) and "space" in written and "kind" not in written:
        from nas import searchfile

        return Space.parse(searchfile.load(path).space, str(path)).with_length(length)
    return Space.load(path).with_length(length)


@space_app.command()
def show(file: SpaceFile, as_json: AsJson = False) -> None:
    """The space with every default filled in, as it is understood.

    Example: nas space show examples/spaces/quickstart.yaml
    """
    space = _load(file)
    if as_json:
        print_json({"space": space.text(), "size": _size(space)})
    else:
        print(space.text(), end="")


def _size(space: Space) -> dict[str, object]:
    size = space.size()
    return {"points": size.points, "continuous": size.continuous}


@space_app.command()
def size(file: SpaceFile, as_json: AsJson = False) -> None:
    """How many points the space has, exactly.

    Example: nas space size examples/spaces/quickstart.yaml
    """
    space = _load(file)
    print_json(_size(space)) if as_json else print(space.size())


@space_app.command()
def sample(
    file: SpaceFile,
    count: Annotated[int, typer.Option("--count", "-n", min=1)] = 1,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    by: Annotated[
        Literal["choices", "architectures"],
        typer.Option(help="choices: every hole uniform; architectures: every point equally likely."),
    ] = "choices",
    length: Length = 1024,
    as_json: AsJson = False,
) -> None:
    """Draw random architectures that keep the constraints.

    Example: nas space sample examples/spaces/quickstart.yaml -n 3 --by architectures
    """
    space, generator = _load(file, length), random.Random(seed)
    points = [space.sample(generator, by=by) for _ in range(count)]
    if as_json:
        print_json(
            [{"hash": p.architecture.hash, "choices": p.choices, "architecture": p.architecture.text()} for p in points]
        )
    else:
        print("---\n".join(f"# {point.architecture.short}\n{point.architecture.text()}" for point in points), end="")


@space_app.command()
def check(
    file: SpaceFile,
    samples: Annotated[int, typer.Option(min=1, help="How many points to draw.")] = 200,
    length: Length = 1024,
    as_json: AsJson = False,
) -> None:
    """Read the space, draw points, and say how many build and keep the constraints. Exits with 1 when none does.

    Example: nas space check examples/spaces/quickstart.yaml
    """
    space, generator = _load(file, length), random.Random(0)
    reasons: dict[str, int] = {}
    kept = 0
    for _ in range(samples):
        found = space.violations(space.sample(generator, feasible=False).architecture)
        kept += not found
        for name in {violation.quantity for violation in found}:
            reasons[name] = reasons.get(name, 0) + 1
    rows = [
        {"samples": samples, "kept": kept, **{f"refused: {name}": count for name, count in sorted(reasons.items())}}
    ]
    print_rows(rows, as_json)
    if not kept:
        raise typer.Exit(1)


@space_app.command()
def diff(old: SpaceFile, new: SpaceFile, as_json: AsJson = False) -> None:
    """What NEW adds to OLD, takes away and renames, and whether it holds every point of OLD.

    Example: nas space diff small.yaml large.yaml
    """
    from searchspace.spacediff import diff as compare

    found = compare(_load(old), _load(new))
    if as_json:
        print_json({"added": found.added, "removed": found.removed, "renamed": found.renamed, "larger": found.larger})
        return
    for sign, lines in (("+", found.added), ("-", found.removed), ("~", found.renamed)):
        for line in lines:
            print(f"{sign} {line}")
    note(
        "Every point of the old space is in the new one." if found.larger else "Some points of the old space are gone."
    )
