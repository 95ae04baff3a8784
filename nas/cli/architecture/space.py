"""nas space: what a space of architectures holds."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import note, print_json

if TYPE_CHECKING:
    from searchspace.space.space import Space

space_app = typer.Typer(help="Look into a space of architectures.", no_args_is_help=True)
app.add_typer(space_app, name="space")

HELP = "A space file, or a search file that holds a space."
SpaceFile = Annotated[Path, typer.Argument(metavar="FILE", help=HELP, show_default=False)]
OldFile = Annotated[Path, typer.Argument(metavar="OLD", help=HELP, show_default=False)]
NewFile = Annotated[Path, typer.Argument(metavar="NEW", help=HELP, show_default=False)]
Length = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Sequence length for constraints. Default: the task's in a search file, else 1024.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed draws the same.")]


def _load(path: Path, length: int | None = None) -> Space:
    """The space of a file; constraints are computed for sequences of `length`."""
    from searchspace.language import documents, language
    from searchspace.space.space import Space

    written = documents.load(path, tags=language.TAGS).data
    if isinstance(written, dict) and "space" in written and "kind" not in written:
        from nas.config import factory, searchfile

        space = factory.space(searchfile.load(path))
    else:
        space = Space.load(path)
    return space if length is None else space.with_length(length)


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
    return {"points": size.points, "discrete": size.discrete, "continuous": size.continuous}


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
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 1,
    seed: Seed = 0,
    by: Annotated[
        Literal["choices", "architectures"],
        typer.Option(help="choices: every hole uniform; architectures: every point equally likely."),
    ] = "choices",
    length: Length = None,
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
    seed: Seed = 0,
    length: Length = None,
    as_json: AsJson = False,
) -> None:
    """Read the space, draw points, and say how many build and keep the constraints. Exits with 1 when none does.

    Example: nas space check examples/spaces/quickstart.yaml
    """
    space, generator = _load(file, length), random.Random(seed)
    refused: Counter[str] = Counter()
    kept = 0
    for _ in range(samples):
        found = space.violations(space.sample(generator, feasible=False).architecture)
        kept += not found
        refused.update({violation.quantity for violation in found})
    if as_json:
        print_json({"samples": samples, "kept": kept, "refused": dict(refused.most_common()), **_size(space)})
    else:
        print(f"{space.size()}; of {samples} random ones {kept} build and keep the constraints.")
        for name, count in refused.most_common():
            print(f"{count} break {name!r}")
    if not kept:
        raise typer.Exit(1)


@space_app.command()
def diff(old: OldFile, new: NewFile, as_json: AsJson = False) -> None:
    """What NEW adds to OLD, takes away and renames, and whether it holds every point of OLD.

    Example: nas space diff small.yaml large.yaml
    """
    from searchspace.space.spacediff import diff as compare

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
