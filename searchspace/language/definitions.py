"""`define` and `use`: blocks that are written once and stand, with one set of parameters, at several places.

    define: {shared: {attention: {heads: !choice [2, 4]}}}
    body: [use: shared, feed_forward, use: shared]

A use is a block of its own in the tree, which holds the blocks of its definition. The holes of a definition are filled
once: at its first use they have a name, and at the others they are tied to that name as by `!same`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from searchspace import registry
from searchspace.errors import nearest
from searchspace.language import schema
from searchspace.language.documents import Document, Path_, describe
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value

USE = "use"
TIE = "use "  # what begins the names of holes that only tie the uses of a definition
Items = tuple[Value, ...]


def is_tie(name: str | None) -> bool:
    """Whether a hole has this name only because several places use its definition."""
    return name is not None and name.startswith(TIE)


class Reading(Protocol):
    """What reads one file, see `searchspace.language.language`."""

    document: Document
    paths: dict[int, tuple[object, str]]

    def problem(self, message: str, path: Path_) -> Any: ...

    def placed(self, node: Any, path: Path_) -> Any: ...

    def path_of(self, node: object) -> str: ...

    def blocks(self, accepted: schema.Accepts, data: Any, path: Path_) -> Items: ...


class Definitions:
    """The definitions of one file, which `reading` reads."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.written: dict[str, Any] = {}
        self.path: Path_ = ()
        self.known: dict[str, tuple[Items, Items]] = {}  # the blocks at the first use, and at later ones
        self.open: list[str] = []  # those that are being read

    def read(self, data: Any, path: Path_) -> None:
        """Take the definitions of a model. Records what is no mapping of names to blocks."""
        if not isinstance(data, dict) or "define" not in data:
            return
        self.path, written = (*path, "define"), data["define"]
        if isinstance(written, dict) and written and all(isinstance(name, str) for name in written):
            self.written = written
        else:
            message = f"Expected names with blocks, such as `shared: [attention]`, found {describe(written)}."
            self.reading.problem(message, self.path)

    def use(self, name: Any, path: Path_) -> Any:
        """The block `use: name` at `path`."""
        if not isinstance(name, str) or name not in self.written:
            near = nearest(name, self.written) if isinstance(name, str) else ""
            known = f"Defined: {', '.join(self.written)}." if self.written else "The file has no `define`."
            return self.reading.problem(f"Nothing is defined as {name!r}.{near} {known}", path)
        if name in self.open:
            return self.reading.problem(f"The definition of {name!r} uses itself.", path)
        blocks = self.known[name][1] if name in self.known else self._first(name)
        return self.reading.placed(Block(USE, {"name": name, "of": blocks}, self.reading.document.mark(path)), path)

    def check_used(self) -> None:
        """Record each definition that nothing uses."""
        for name in self.written.keys() - self.known.keys():
            self.reading.problem(f"Nothing uses the definition {name!r}; write `use: {name}`.", (*self.path, name))

    def _first(self, name: str) -> Items:
        self.open.append(name)
        accepted = schema.accepted(registry.block_type(USE).fields["of"])
        blocks = self.reading.blocks(accepted, self.written[name], (*self.path, name))
        self.open.pop()
        pairs = [self._tied(block, f"{TIE}{name}") for block in blocks]
        self.known[name] = tuple(first for first, _ in pairs), tuple(later for _, later in pairs)
        return self.known[name][0]

    def _tied(self, value: Any, prefix: str) -> tuple[Any, Any]:
        """`value` with named holes, and the same with ties to them."""
        place = self.reading.path_of(value)
        if isinstance(value, Choice | Integers | Floats):
            first = value if value.name else replace(value, name=f"{prefix}{place}")
            made: tuple[Any, Any] = first, Same(first.name or "", value.mark)
        elif isinstance(value, tuple):
            pairs = [self._tied(item, prefix) for item in value]
            made = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
        elif isinstance(value, Block) and value.has_holes:
            fields = {name: self._tied(below, prefix) for name, below in value.fields.items()}
            made = (
                Block(value.name, {name: one for name, (one, _) in fields.items()}, value.mark),
                Block(value.name, {name: other for name, (_, other) in fields.items()}, value.mark),
            )
        else:
            return value, value
        for node in made:
            self.reading.paths[id(node)] = (node, place)
        return made


def of(value: Value) -> dict[str, Items]:
    """The definitions that are used in a tree, in the order of their first use; those inside others come first."""
    found: dict[str, Items] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Block):
            for below in value.fields.values():
                visit(below)
            if value.name == USE:
                name, blocks = value.fields["name"], value.fields["of"]
                assert isinstance(name, str) and isinstance(blocks, tuple)
                found.setdefault(name, blocks)
        elif isinstance(value, tuple):
            for item in value:
                visit(item)
        elif isinstance(value, Choice):
            for option in value.options:
                visit(option)

    visit(value)
    return found
