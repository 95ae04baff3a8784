"""Published architectures by name. Each is a YAML file in this folder that cites its paper in a comment at the top.

A file has the sizes of the paper's base model. Its comment lists the changes for other sizes, below a line `Sizes:`.
"""

from __future__ import annotations

import re
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
SIZES = re.compile(r"^# Sizes:\n((?:#.*\n)+)", re.M)
BASE = "base"


def names() -> list[str]:
    """The names of all architectures in the zoo, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def sizes(name: str) -> list[str]:
    """The sizes of the architecture called `name`: `base` first. Raises SpaceError if there is no such name."""
    return [BASE, *_changes(name)]


def load(name: str, size: str = BASE, **fields: Any) -> Architecture:
    """The architecture called `name` in a size. `fields` replace fields of the model, such as width or vocabulary.

    Raises SpaceError if there is no such name, size or field.
    """
    root = tree(name, size)
    return Architecture.from_block(Block(root.name, {**root.fields, **fields}))


def tree(name: str, size: str = BASE) -> Block:
    """The tree of the architecture called `name`, as in its file. Raises SpaceError for an unknown name or size."""
    if size not in (known := sizes(name)):
        raise SpaceError(f"{name} has no size {size!r}.{nearest(size, known)} It has: {', '.join(known)}.")
    root = language.load(path(name)).root
    return root if size == BASE else changed(root, _changes(name)[size])


def description(name: str) -> str:
    """A description: the first line of its file. Raises SpaceError if there is no such name."""
    return text(name).splitlines()[0].removeprefix("#").strip()


def text(name: str) -> str:
    """The text of its file, with comments. Raises SpaceError if there is no such name."""
    return path(name).read_text(encoding="utf-8")


def path(name: str) -> Path:
    """The path of its file. Raises SpaceError with the nearest name if there is no such name."""
    if name not in names():
        raise SpaceError(f"The zoo has no {name!r}.{nearest(name, names())} It has: {', '.join(names())}.")
    return FOLDER / f"{name}.yaml"


@cache
def _changes(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The changes for each size; the keys of a size are explained in `changed`."""
    found = SIZES.search(text(name))
    return yaml.safe_load(re.sub(r"^#", "", found[1], flags=re.M)) if found else {}


def changed(root: Block, changes: Mapping[str, Any]) -> Block:
    """`root` with `changes`: `field` sets that field in every block that has it, `block.field` only in that block.

    Raises SpaceError if no block has the field.
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
            # null means that the block has no such part: an encoder of vectors has no vocabulary. Only `block.field`
            # sets it.
            if key in changes and (old is not None or "." in key):
                used.add(key)
                return changes[key]
        return resized(old)

    done = resized(root)
    if missing := changes.keys() - used:
        raise SpaceError(f"No block of this {root.name} has a field {', '.join(sorted(missing))} to set.")
    return done
