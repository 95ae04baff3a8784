"""Published architectures by name: each a YAML file here, with its paper in the comment at its head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from searchspace.architecture import Architecture
from searchspace.errors import SpaceError, nearest
from searchspace.tree import Block

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """What the zoo holds, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str, **fields: Any) -> Architecture:
    """The architecture called `name`; `fields` of its model, such as width or vocabulary, replace those of the file.

    Raises SpaceError when there is no such name or field.
    """
    architecture = Architecture.load(path(name))
    if not fields:
        return architecture
    root = architecture.root
    return Architecture.from_block(Block(root.name, {**root.fields, **fields}))


def description(name: str) -> str:
    """The first line of its file: what it is."""
    return text(name).splitlines()[0].removeprefix("#").strip()


def text(name: str) -> str:
    """Its file, comments and all."""
    return path(name).read_text(encoding="utf-8")


def path(name: str) -> Path:
    """Its file."""
    if name not in names():
        raise SpaceError(f"The zoo has no {name!r}.{nearest(name, names())} It has: {', '.join(names())}.")
    return FOLDER / f"{name}.yaml"
