"""nas space: prints, counts, samples, checks and compares spaces of architectures."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nas.cli.app import app
from nas.cli.options import AsJson
from nas.cli.output import note, print_json, say
from nas.errors import UsageError

if TYPE_CHECKING:
    from searchspace.space.space import Space

HELP = "A space file, or a search file with a space."


@app.command()
def space(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=HELP, show_default=False)],
    sample: Annotated[
        int | None, typer.Option("--sample", "-n", min=1, help="Draw this many random architectures.")
    ] = None,
    check: Annotated[
        int | None, typer.Option(min=1, help="Draw this many points, and count those that build and are within limits.")
    ] = None,
    contains: Annotated[
        Path | None, typer.Option(metavar="OLD", help="List what FILE adds to this space, removes and renames.")
    ] = None,
    by: Annotated[
        Literal["choices", "architectures"],
        typer.Option(help="choices: draw each hole uniformly; architectures: draw each point with equal probability."),
    ] = "choices",
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same samples.")] = 0,
    length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequence length for constraints. Default: the length of the search file's task, or 1024.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a space with every default filled in and its exact number of points; or sample, check or compare it.

    With --check it exits with 1 if no point builds and satisfies the constraints.

    Example: nas space examples/spaces/quickstart.yaml -n 3 --by architectures
    """
    if sum(each is not None for each in (sample, check, contains)) > 1:
        raise UsageError("Give one of --sample, --check and --contains.")
    found = _load(file, length)
    if sample is not None:
        _sample(found, sample, seed, by, as_json)
    elif check is not None:
        _check(found, check, seed, as_json)
    elif contains is not None:
        _compare(_load(contains), found, as_json)
    elif as_json:
        print_json({"space": found.text(defaults=True), **_size(found)})
    else:
        say(found.text(defaults=True), end="")
        note(str(found.size()))


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
        from nas.config import searchfile
        from nas.config.parts import parts

        space = parts(searchfile.load(path)).space
    else:
        space = Space.load(path, given=BYTES)
        filled = [name for name in BYTES if name not in written and space.root.fields.get(name) == BYTES[name]]
        if filled:
            note(f"{path} leaves {', '.join(filled)} to a task; it is {BYTES[filled[0]]} here, that of bytes.")
    return space if length is None else space.with_length(length)


def _size(space: Space) -> dict[str, object]:
    size = space.size()
    return {"points": size.points, "discrete": size.discrete, "continuous": size.continuous}


def _sample(space: Space, count: int, seed: int, by: Literal["choices", "architectures"], as_json: bool) -> None:
    """Print random architectures that satisfy the constraints."""
    generator = random.Random(seed)
    points = [space.sample(generator, by=by) for _ in range(count)]
    if as_json:
        print_json(
            [{"hash": p.architecture.hash, "choices": p.choices, "architecture": p.architecture.text()} for p in points]
        )
    else:
        say("---\n".join(f"# {point.architecture.short}\n{point.architecture.text()}" for point in points), end="")


def _check(space: Space, samples: int, seed: int, as_json: bool) -> None:
    """Print how many of `samples` points build and satisfy the constraints. Exits with 1 if there are none."""
    generator = random.Random(seed)
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


def _compare(old: Space, new: Space, as_json: bool) -> None:
    """Print what `new` adds to `old`, removes and renames, and whether it contains every point of `old`."""
    from searchspace.space.spacediff import diff

    found = diff(old, new)
    if as_json:
        print_json({"added": found.added, "removed": found.removed, "renamed": found.renamed, "larger": found.larger})
        return
    for sign, lines in (("+", found.added), ("-", found.removed), ("~", found.renamed)):
        for line in lines:
            say(f"{sign} {line}")
    note(
        "Every point of the old space is in the new one." if found.larger else "Some points of the old space are gone."
    )
