"""The canonical form of an architecture, which is equal for all its spellings, and the compressed form for printing.

In the canonical form, a `sequence` in a list of blocks is spliced into the list, a `repeat` without shared weights is
expanded to its copies (with their own windows, if windows grow), and a `repeat` with one step is replaced by its body.
`compressed` does the opposite: a run of equal blocks becomes a `repeat`. Trees here are complete (see
`schema.complete`) and have no holes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchspace import registry
from searchspace.errors import Problem, SpaceError
from searchspace.language import schema
from searchspace.tree import Block, Value, kept
from searchspace.window_growth import factors, grown

MAX_BLOCKS = 20_000  # with repeats expanded
MAX_PERIOD = 32  # the longest body that `compressed` finds


def canonical(block: Block) -> Block:
    """The canonical form of `block`. Raises SpaceError if it has more than `MAX_BLOCKS` blocks."""
    done = _Writer().block(block)
    _size(done)
    return done


def encoded(value: Value) -> Any:
    """A tree as JSON data, without fields that are at their default. Hashes are computed from it."""
    if isinstance(value, Block):
        return _encoded(value)
    if isinstance(value, tuple):
        return [encoded(item) for item in value]
    return value


@kept
def _encoded(block: Block) -> dict[str, Any]:
    return {block.name: {name: encoded(field) for name, field in schema.written(block).items()}}


@kept
def compressed(block: Block) -> Block:
    """`block` with every run of equal blocks as a `repeat`; its canonical form is the same."""
    return Block(block.name, {name: _compress_value(block, name) for name in block.fields}, block.mark)


class _Writer:
    """Expands a tree. `remaining` limits the number of list entries, so that a small file cannot fill the memory."""

    def __init__(self) -> None:
        self.remaining = MAX_BLOCKS

    def block(self, block: Block) -> Block:
        entries = _entries(block)
        if entries is not None and entries <= self.remaining:
            self.remaining -= entries
            return block
        fields = {name: self.value(block.name, name, value) for name, value in block.fields.items()}
        return Block(block.name, fields, block.mark)

    def value(self, block: str, name: str, value: Any) -> Value:
        if isinstance(value, Block):
            return self.block(value)
        if not isinstance(value, tuple):
            return value
        if _shape(block, name) == "branches":
            return tuple(self.spliced(branch) for branch in value)
        # A list that must not be empty may contain only an empty sequence. Then the empty sequence stays.
        return self.spliced(value) or (Block("sequence", {"of": ()}),) * bool(value)

    def spliced(self, blocks: tuple[Any, ...]) -> tuple[Block, ...]:
        done: list[Block] = []
        for block in blocks:
            expanded, times, growth = _expanded(self.block(block))
            self.remaining -= len(expanded) * times
            if self.remaining < 0:
                raise _too_many(block)
            done += [copy for factor in factors(growth, times) for copy in grown(expanded, factor)]
        return tuple(done)


@kept
def _entries(block: Block) -> int | None:
    """The number of list entries in `block`, if it is already canonical; None if something in it may be expanded."""
    if block.name in ("sequence", "repeat"):
        return None
    total = 0
    waiting = list(block.fields.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            total += sum(isinstance(item, Block) for item in value)
            waiting += value
        elif isinstance(value, Block):
            below = _entries(value)
            if below is None:
                return None
            total += below
    return total


def _expanded(block: Block) -> tuple[tuple[Block, ...], int, int]:
    """The blocks that replace `block` in a list, how many times, and the growth of their windows."""
    if block.name == "sequence" and block.fields.keys() == {"of"}:
        of: Any = block.fields["of"]
        return _without_nothing(of), 1, 1
    if block.name != "repeat" or schema.written(block).keys() - {"times", "share_weights", "window_growth", "of"}:
        return (block,), 1, 1
    fields: Mapping[str, Any] = block.fields
    times, growth, of = fields["times"], fields["window_growth"], fields["of"]
    if times < 1 or growth < 1 or not of or (fields["share_weights"] and times > 1):
        return (block,), 1, 1
    return _without_nothing(of), times, growth


def _without_nothing(of: tuple[Block, ...]) -> tuple[Block, ...]:
    return tuple(block for block in of if block.name != "sequence")


@kept
def _size(block: Block) -> int:
    """The number of blocks in `block`, itself included. All copies of one body are one object, so a small file can have
    very many. Raises SpaceError for too many.
    """
    size, waiting = 1, list(block.fields.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += value
        elif isinstance(value, Block):
            size += _size(value)
    if size > MAX_BLOCKS:
        raise _too_many(block)
    return size


def _too_many(block: Block) -> SpaceError:
    message = f"More than {MAX_BLOCKS} blocks with repeats expanded, at {block.name}."
    return SpaceError([Problem(message, block.mark)])


def _shape(block: str, field: str) -> schema.Shape | None:
    return schema.accepted(registry.block_type(block).fields[field]).shape


def _compress_value(block: Block, name: str) -> Value:
    value: Any = block.fields[name]
    if isinstance(value, Block):
        return compressed(value)
    if isinstance(value, tuple) and _shape(block.name, name) == "branches":
        return tuple(_compress(tuple(map(compressed, branch))) for branch in value)
    if isinstance(value, tuple):
        return _compress(tuple(map(compressed, value)))
    return value


def _compress(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Replaces runs by repeats, from the left. The longest run counts; of equal ones, that with the shortest body."""
    if len(blocks) == 1:
        return blocks
    letters: list[int] = []  # equal blocks have equal numbers
    known: dict[str, int] = {}
    for block in blocks:
        letters.append(known.setdefault(_spelled(block), len(known)))
    done: list[Block] = []
    start = 0
    while start < len(blocks):
        periods = range(1, min(MAX_PERIOD, (len(blocks) - start) // 2) + 1)
        covered, period = max(((_run(letters, start, p), -p) for p in periods), default=(0, 0))
        body = blocks[start : start - period]
        if covered:
            done.append(schema.complete(Block("repeat", {"times": covered // -period, "of": _compress(body)})))
        else:
            done.append(blocks[start])
        start += covered or 1
    return tuple(done)


@kept
def _spelled(block: Block) -> str:
    return repr(encoded(block))


def _run(letters: list[int], start: int, period: int) -> int:
    """The length of two or more copies of the `period` items at `start`; 0 if there is no second copy."""
    end = start + period
    while end < len(letters) and letters[end] == letters[end - period]:
        end += 1
    copies = (end - start) // period
    return copies * period if copies > 1 else 0
