"""Published architectures by name: each a YAML file here, with its paper in the comment at its head.

A file holds the sizes of the paper's base model; `sizes.yaml` says what its other sizes change.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from searchspace.errors import SpaceError, nearest
from searchspace.language import language
from searchspace.model.architecture import Architecture
from searchspace.tree import Block, Value

FOLDER = Path(__file__).parent
SIZES = "sizes.yaml"
BASE = "base"


def names() -> list[str]:
    """What the zoo holds, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml") if path.name != SIZES)


def sizes(name: str) -> list[str]:
    """The sizes that the architecture called `name` comes in: `base`, then those of the file of sizes."""
    path(name)
    return [BASE, *_changes().get(name, {})]


def load(name: str, size: str = BASE, **fields: Any) -> Architecture:
    """The architecture called `name`; `fields` of its model, such as width or vocabulary, replace those of the file.

    Raises SpaceError when there is no such name, size or field.
    """
    root = tree(name, size)
    return Architecture.from_block(Block(root.name, {**root.fields, **fields}))


def tree(name: str, size: str = BASE) -> Block:
    """The tree of the architecture called `name`, as it is written. Raises SpaceError for no such name or size."""
    if size not in (known := sizes(name)):
        raise SpaceError(f"{name} has no size {size!r}.{nearest(size, known)} It has: {', '.join(known)}.")
    root = language.load(path(name)).root
    return root if size == BASE else changed(root, _changes()[name][size])


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


@cache
def _changes() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    return yaml.safe_load((FOLDER / SIZES).read_text(encoding="utf-8"))


def changed(root: Block, changes: Mapping[str, Any]) -> Block:
    """`root` with each field of `changes` set wherever it stands, or, as `block.field`, in the blocks of that name.

    Raises SpaceError for one that stands nowhere.
    """
    used: set[str] = set()

    def resized(value: Value) -> Any:
        if isinstance(value, tuple):
            return tuple(map(resized, value))
        if not isinstance(value, Block):
            return value
        return Block(value.name, {name: field(value.name, name, old) for name, old in value.fields.items()})

    def field(block: str, name: str, old: Value) -> Any:
        for key in (f"{block}.{name}", name):
            # A field that is null says that the block has no such thing, such as an encoder of vectors no vocabulary;
            # only one who names the block gives it that.
            if key in changes and (old is not None or "." in key):
                used.add(key)
                return changes[key]
        return resized(old)

    done = resized(root)
    if missing := changes.keys() - used:
        raise SpaceError(f"No block of this {root.name} has a field {', '.join(sorted(missing))} to set.")
    return done
