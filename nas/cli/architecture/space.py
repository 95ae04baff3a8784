"""nas space: print, count, sample, check and compare spaces of architectures."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import note, print_json, say

if TYPE_CHECKING:
    from searchspace.space.space import Space

space_app = typer.Typer(help="Print, count, sample and check spaces of architectures.", no_args_is_help=True)
app.add_typer(space_app, name="space")

HELP = "A space file, or a search file with a space."
SpaceFile = Annotated[Path, typer.Argument(metavar="FILE", help=HELP, show_default=False)]
OldFile = Annotated[Path, typer.Argument(metavar="OLD", help=HELP, show_default=False)]
NewFile = Annotated[Path, typer.Argument(metavar="NEW", help=HELP, show_default=False)]
Length = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Sequence length for constraints. Default: the length of the search file's task, or 1024.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same samples.")]


def _load(path: Path, length: int | None = None) -> Space:
    """The space in the file at `path`; constraints are computed for sequences of `length`.

    A space file that leaves its vocabulary to a task is read with that of bytes. Raises SpaceError or UsageError if the
    file is not a space or a search file.
    """
    from nas.tasks.fields import BYTES
    from searchspace.language import documents, language
    from searchspace.space.space import Space

    written = documents.load(path, tags=language.TAGS).data
    if isinstance(written, dict) and "space" in written and "kind" not in written:
        from nas.config import factory, searchfile

        space = factory.space(searchfile.load(path))
    else:
        space = Space.load(path, given=BYTES)
        filled = [name for name in BYTES if name not in written and space.root.fields.get(name) == BYTES[name]]
        if filled:
            note(f"{path} leaves {', '.join(filled)} to a task; it is {BYTES[filled[0]]} here, that of bytes.")
    return space if length is None else space.with_length(length)


@space_app.command()
def show(file: SpaceFile, as_json: AsJson = False) -> None:
    """Print the space with every default filled in.

    Example: nas space show examples/spaces/quickstart.yaml
    """
    space = _load(file)
    if as_json:
        print_json({"space": space.text(defaults=True), "size": _size(space)})
    else:
        say(space.text(defaults=True), end="")


def _size(space: Space) -> dict[str, object]:
    size = space.size()
    return {"points": size.points, "discrete": size.discrete, "continuous": size.continuous}


@space_app.command()
def size(file: SpaceFile, as_json: AsJson = False) -> None:
    """Count the points of the space exactly.

    Example: nas space size examples/spaces/quickstart.yaml
    """
    space = _load(file)
    print_json(_size(space)) if as_json else say(str(space.size()))


@space_app.command()
def sample(
    file: SpaceFile,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of samples.")] = 1,
    seed: Seed = 0,
    by: Annotated[
        Literal["choices", "architectures"],
        typer.Option(help="choices: draw each hole uniformly; architectures: draw each point with equal probability."),
    ] = "choices",
    length: Length = None,
    as_json: AsJson = False,
) -> None:
    """Draw random architectures that satisfy the constraints.

    Example: nas space sample examples/spaces/quickstart.yaml -n 3 --by architectures
    """
    space, generator = _load(file, length), random.Random(seed)
    points = [space.sample(generator, by=by) for _ in range(count)]
    if as_json:
        print_json(
            [{"hash": p.architecture.hash, "choices": p.choices, "architecture": p.architecture.text()} for p in points]
        )
    else:
        say("---\n".join(f"# {point.architecture.short}\n{point.architecture.text()}" for point in points), end="")


@space_app.command()
def check(
    file: SpaceFile,
    samples: Annotated[int, typer.Option(min=1, help="Number of points to draw.")] = 200,
    seed: Seed = 0,
    length: Length = None,
    as_json: AsJson = False,
) -> None:
    """Draw points and count those that build and satisfy the constraints. Exits with 1 if there are none.

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
        say(f"{space.size()}; of {samples} random ones, {kept} build and satisfy the constraints.")
        for name, count in refused.most_common():
            say(f"{count} break {name!r}")
    if not kept:
        raise typer.Exit(1)


@space_app.command()
def diff(old: OldFile, new: NewFile, as_json: AsJson = False) -> None:
    """List what NEW adds to OLD, removes and renames, and whether NEW contains every point of OLD.

    Example: nas space diff small.yaml large.yaml
    """
    from searchspace.space.spacediff import diff as compare

    found = compare(_load(old), _load(new))
    if as_json:
        print_json({"added": found.added, "removed": found.removed, "renamed": found.renamed, "larger": found.larger})
        return
    for sign, lines in (("+", found.added), ("-", found.removed), ("~", found.renamed)):
        for line in lines:
            say(f"{sign} {line}")
    note(
        "Every point of the old space is in the new one." if found.larger else "Some points of the old space are gone."
    )
