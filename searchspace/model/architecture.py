"""An architecture: a complete description of a model, without holes.

Its tree is canonical (see `searchspace.language.canonical`), so two spellings of one model give equal architectures.
The hash does not include fields at their default, so a new field with a neutral default changes no hash. Study
databases contain hashes, so they must never change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Literal

from searchspace import registry, window_growth
from searchspace.errors import Problem, SpaceError
from searchspace.language import canonical, fitting, language, schema
from searchspace.language.collecting import collected_later
from searchspace.registry import Configured
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value

HASH_VERSION = "tessera-architecture-1\n"


class Architecture:
    """A model without holes. It is immutable, and equal to every other spelling of the same model."""

    def __init__(self, root: Block):
        """`root` must be complete and canonical; `from_block` accepts any tree."""
        self._root = root

    @classmethod
    @collected_later()
    def parse(cls, text: str, source: str = "<text>") -> Architecture:
        """Reads an architecture; constraints are ignored. Raises SpaceError with all problems."""
        return cls._described(language.parse(text, source))

    @classmethod
    @collected_later()
    def load(cls, path: str | Path, given: language.Given | None = None) -> Architecture:
        """Reads the file at `path`. `given` fields are filled in if the file leaves them out.

        Raises SpaceError with all problems.
        """
        return cls._described(language.load(path, given))

    @classmethod
    def from_block(cls, block: Block) -> Architecture:
        """From a tree in any spelling. Raises SpaceError if it has holes, wrong names or wrong types."""
        if block.name not in registry.block_types("model"):
            models = ", ".join(registry.block_types("model"))
            raise SpaceError([Problem(f"Expected a model, one of {models}, found {block.name!r}.", block.mark)])
        if problems := _holes(block, ""):
            raise SpaceError(problems)
        complete = schema.complete(block)
        if problems := window_growth.problems(complete):
            raise SpaceError(problems)
        return cls(canonical.canonical(complete))

    @classmethod
    def _described(cls, description: language.Description) -> Architecture:
        if problems := _holes(description.root, ""):
            raise SpaceError(problems)
        return cls(canonical.canonical(description.root))

    @classmethod
    def deferred(cls, hash: str, make: Callable[[], Architecture]) -> Architecture:
        """The architecture with this hash, which `make` gives. It is made when more than its hash is asked for."""
        return _Deferred(hash, make)

    @property
    def root(self) -> Block:
        """The canonical tree: all defaults are filled in, and repeats without shared weights are expanded."""
        return self._root

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the canonical form in hexadecimal."""
        content = json.dumps(canonical.encoded(self.root), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256((HASH_VERSION + content).encode()).hexdigest()

    @property
    def short(self) -> str:
        """The first 12 digits of the hash."""
        return self.hash[:12]

    @cached_property
    def configured(self) -> Configured:
        """The configurations, ready to be built. Raises SpaceError if values do not fit together."""
        try:
            return registry.configure(self.root, role="model")
        except (ValueError, ArithmeticError) as error:
            raise SpaceError(fitting.problems(self.root) or str(error)) from None

    @cached_property
    def compressed(self) -> Block:
        """The tree for printing, with runs of equal blocks as `repeat`."""
        return canonical.compressed(self.root)

    def text(self, *, defaults: bool = False) -> str:
        """Readable YAML; `parse` reads the same architecture from it. `defaults` also writes the default values."""
        return language.render(self.compressed, defaults=defaults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and self.hash == other.hash

    def __hash__(self) -> int:
        return int(self.hash[:16], 16)

    def __repr__(self) -> str:
        return f"Architecture({self.root.name}, {self.short})"

    def __reduce__(self):  # without cached values
        return Architecture, (self.root,)


class _Deferred(Architecture):
    """See `Architecture.deferred`. Most trials of a large study are only known by their hash."""

    def __init__(self, hash: str, make: Callable[[], Architecture]) -> None:
        self.__dict__["hash"] = hash  # in place of the cached value
        self._make = make

    @cached_property
    def _root(self) -> Block:  # type: ignore[override]
        return self._make().root


@dataclass(frozen=True)
class Difference:
    """A difference between two architectures at `path`, a path of the printed form: `body[0].repeat.times`.

    `before` is None if something was added, `after` is None if something was removed.
    """

    path: str
    before: Value
    after: Value
    kind: Literal["changed", "added", "removed"] = "changed"

    @property
    def texts(self) -> tuple[str, str]:
        """Before and after as one line each; "" for what was added or removed."""
        before = "" if self.kind == "added" else _shown(self.before)
        return before, "" if self.kind == "removed" else _shown(self.after)

    def __str__(self) -> str:
        before, after = self.texts
        words = {"changed": f"  {self.path}: {before} -> {after}", "added": f"+ {self.path}: {after}"}
        return words.get(self.kind, f"- {self.path}: {before}")


def diff(first: Architecture, second: Architecture) -> list[Difference]:
    """The differences between `first` and `second`, field by field; empty if they are equal."""
    return list(_differences(first.compressed, second.compressed, ""))


def _differences(first: Value, second: Value, path: str) -> Iterator[Difference]:
    if schema.same(first, second):
        return
    if isinstance(first, Block) and isinstance(second, Block) and first.name == second.name:
        for name, value in first.fields.items():
            yield from _differences(value, second.fields[name], f"{path}.{name}".lstrip("."))
    elif isinstance(first, tuple) and isinstance(second, tuple):
        yield from _list_differences(first, second, path)
    else:
        yield Difference(path, first, second)


def _list_differences(first: tuple[Value, ...], second: tuple[Value, ...], path: str) -> Iterator[Difference]:
    """Equal items are matched first, then items of one kind in order. The others were added or removed."""
    one, two = ([json.dumps(canonical.encoded(item)) for item in items] for items in (first, second))
    for tag, i, i_end, j, j_end in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        kinds, others = ([_kind(item) for item in items] for items in (first[i:i_end], second[j:j_end]))
        for same, a, a_end, b, b_end in SequenceMatcher(None, kinds, others, autojunk=False).get_opcodes():
            if same in ("equal", "replace"):
                paired = min(a_end - a, b_end - b)
                for k in range(paired):
                    yield from _differences(first[i + a + k], second[j + b + k], _at(path, i + a + k, first))
                a, b = a + paired, b + paired
            for k in range(i + a, i + a_end):
                yield Difference(_at(path, k, first), first[k], None, "removed")
            for k in range(j + b, j + b_end):
                yield Difference(_at(path, k, second), None, second[k], "added")


def _at(path: str, index: int, items: tuple[Value, ...]) -> str:
    item = items[index]
    return f"{path}[{index}].{item.name}" if isinstance(item, Block) else f"{path}[{index}]"


def _kind(item: Value) -> str:
    return item.name if isinstance(item, Block) else "list"


def _shown(value: Value) -> str:
    return json.dumps(canonical.encoded(value))


def _holes(value: Value, path: str) -> list[Problem]:
    """One problem for each hole."""
    match value:
        case Choice() | Integers() | Floats() | Same():
            found = {Choice: "!choice", Integers: "!int", Floats: "!float", Same: "!same"}[type(value)]
            message = f"An architecture has no holes, but found {found}. With holes it is a space."
            return [Problem(message, value.mark, path)]
        case Block():
            return [p for name, below in value.fields.items() for p in _holes(below, f"{path}.{name}".lstrip("."))]
        case tuple():
            return [
                p
                for i, item in enumerate(value)
                for p in _holes(item, f"{path}[{i}]" + (f".{item.name}" if isinstance(item, Block) else ""))
            ]
    return []
