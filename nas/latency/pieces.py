"""Splits an architecture into pieces that are measured once and occur in other architectures too.

A block that holds other blocks is split into its skeleton (the block with nothing in it) and those blocks. So the time
of a model is the sum of the times of its skeletons and leaves, times their numbers of calls. A block that cannot be
split is one piece with everything in it, such as one that changes the length. A halting block calls what it holds as
often as its depth says; while it generates token by token, it takes every step, but halted positions skip what comes
after the last block that mixes positions. An encoder-decoder calls its encoder for the prompt only.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from nas.latency.runs import Setting
from searchspace.combinators.sequence import SequenceConfig
from searchspace.cost import Shape
from searchspace.parts import Composite, Part, configured_below
from searchspace.primitives.attention.attention import AttentionConfig
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import Configured, block_type
from searchspace.window_growth import GROWTH


class CannotCompose(ValueError):
    """The model is not a sum of pieces, so it has to be measured as a whole."""


@dataclass(frozen=True)
class Piece:
    """A block on an input of `length` positions and `width` channels, or a model with nothing in it (`position` None).

    It holds everything that the time of the block depends on and nothing else, so equal pieces of different models
    compare equal. memory: positions of the encoder's output that the block reads, 0 if it reads none. depth: of halting
    blocks in it that could not be split, None for that of untrained ones.
    """

    block: Configured
    length: int
    width: int
    position: Configured | None
    memory: int = 0
    depth: int | None = None

    @cached_property
    def _hash(self) -> int:
        return hash((self.block, self.length, self.width, self.position, self.memory, self.depth))

    def __hash__(self) -> int:  # computed once, because it covers the whole tree of the block
        return self._hash

    @property
    def is_model(self) -> bool:
        return self.position is None

    def text(self) -> str:
        """Canonical JSON."""
        return json.dumps(written(self), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Call:
    """One call of a piece.

    again: the backward pass calls it once more, because the forward pass kept nothing. fresh: no earlier call has its
    parameters.
    """

    piece: Piece
    again: bool = False
    fresh: bool = True


def written(value: Any) -> Any:
    """A configuration as plain data, including the values that its surroundings filled in."""
    if isinstance(value, Configured):
        return {value.type.name: written(value.config)}
    if is_dataclass(value):
        return {field.name: written(getattr(value, field.name)) for field in fields(value)}
    return [written(item) for item in value] if isinstance(value, tuple) else value


def calls(model: Configured, setting: Setting) -> list[Call]:
    """The calls of pieces in one call of a model, in order. Raises CannotCompose if it is not a sum of pieces."""
    model = _in_phase(model, setting)
    length, streaming = setting.length, setting.phase == "decode"
    config, shape = model.config, Shape(length=length, halting_steps=setting.depth)
    parts = [part for part in model.type.module.parts(config, shape) if _is_block(part)]
    wide = len(parts) - 1 if getattr(config, "width_after", config.width) != config.width else None
    found = [Call(Piece(_bare_model(model, wide is not None), length, config.width, None))]
    memo: Memo = {}
    known: dict[int, tuple[Part, Piece]] = {}  # by the identity of the part, which copies of a layer share
    for number, part in enumerate(parts):
        if streaming and part.whole:
            continue  # the encoder has read its input before
        for made, again, fresh in _below(part, False, True, streaming, memo, is_there=number == wide):
            if id(made) not in known:
                known[id(made)] = made, _piece(made, config, setting.depth)
            found.append(Call(known[id(made)][1], again and setting.phase == "train", fresh))
    return found


def within(part: Part, config: Any, setting: Setting, *, again: bool) -> list[Call]:
    """The calls of pieces in one call of a block of a model with this configuration, in order.

    again: the backward pass calls the block once more. Raises CannotCompose if the block is not a sum of pieces.
    """
    assert part.block is not None
    trains = setting.phase == "train"
    below = _below(replace(part, block=_in_phase(part.block, setting)), again, True, setting.phase == "decode", {})
    return [Call(_piece(made, config, setting.depth), twice and trains, first) for made, twice, first in below]


def _in_phase(value: Any, setting: Setting) -> Any:
    """The same configuration; outside of training without dropout, which has no effect there."""
    if setting.phase == "train":
        return value
    if isinstance(value, tuple):
        return tuple(_in_phase(item, setting) for item in value)
    if not isinstance(value, Configured):
        return value
    each = {field.name: getattr(value.config, field.name) for field in fields(value.config)}
    changed = {name: 0.0 if name == "dropout" else _in_phase(inner, setting) for name, inner in each.items()}
    return Configured(value.type, replace(value.config, **changed))


def _piece(made: Part, config: Any, depth: int | None) -> Piece:
    """The piece of a skeleton or leaf in a model with this configuration."""
    block = made.block
    assert block is not None
    heard = not block.type.module.capabilities.pointwise and _is_heard(config.position)
    memory = made.shape.memory if _reads_memory(block) else 0
    halts = any(each.type.name == "halting" for each in configured_below(block))
    position = config.position if heard else NOWHERE
    return Piece(block, made.shape.length, config.width, position, memory, depth if halts else None)


Below = list[tuple[Part, bool, bool]]
Memo = dict[Hashable, Below]


def _below(part: Part, again: bool, fresh: bool, streaming: bool, memo: Memo, *, is_there: bool = False) -> Below:
    """The skeletons and leaves of one call of a part, in order, as parts, with `again` and `fresh` of their calls.

    memo: earlier results for this model; copies of a layer get the same parts. is_there: its skeleton is already
    counted.
    """
    key = part.block, part.shape, again, fresh and not part.again, is_there
    if key not in memo:
        memo[key] = list(_found_below(part, again, fresh and not part.again, streaming, memo, is_there))
    return memo[key]


def _found_below(
    part: Part, again: bool, fresh: bool, streaming: bool, memo: Memo, is_there: bool
) -> Iterator[tuple[Part, bool, bool]]:
    block = part.block
    assert block is not None
    below = _parts(block, part.shape)
    if not is_there:
        yield replace(part, block=block if below is None else skeleton(block)), again, fresh
    elif below is None:
        raise CannotCompose(f"{block.type.name} has another output width.")
    inner = [each for each in below or () if _is_block(each)]
    for count, same in groupby(inner, key=lambda each: _times(each, streaming)):
        group = [(each.shared, _below(each, again or each.recomputed, fresh, streaming, memo)) for each in same]
        for cycle in range(count):
            for shared, made in group:
                old = shared and cycle > 0
                yield from ((each, twice, first and not old) for each, twice, first in made)


def _times(part: Part, streaming: bool) -> int:
    """How often a part is called. Expected numbers count where a halting block stops early: not while streaming, but
    for the parts that halted positions skip.

    Raises CannotCompose if the expected number is not a whole number.
    """
    if part.expected is None or (streaming and not part.skipped):
        return part.count
    if part.expected != int(part.expected):
        raise CannotCompose(f"a halting block takes {part.expected:g} steps on average, not a whole number.")
    return int(part.expected)


def _parts(block: Configured, shape: Shape) -> list[Part] | None:
    """The parts of a block whose time is its own plus that of its parts; None for other blocks."""
    if not issubclass(block.type.module, Composite):
        return None
    parts = block.type.module.parts(block.config, shape)
    same = replace(shape, normed=False)  # what stands before a block does not matter to its time
    return parts if all(replace(part.shape, normed=False) == same for part in parts) else None


def _is_block(part: Part) -> bool:
    return part.block is not None and part.block.type.role == "block"


def skeleton(block: Configured) -> Configured:
    """The block or model with empty places for the blocks that it holds; norms are kept.

    Raises CannotCompose if the block is not valid without what it holds.
    """
    names = [name for name, field in block.type.fields.items() if field.role == "block"]
    emptied = {name: _emptied(getattr(block.config, name)) for name in names}
    if hasattr(block.config, GROWTH):
        emptied[GROWTH] = 1  # nothing is left whose window could grow
    try:
        return Configured(block.type, replace(block.config, **emptied))
    except ValueError as error:
        raise CannotCompose(f"{block.type.name} with nothing in it is not valid: {error}") from error


def _emptied(value: Any) -> Any:
    return tuple(_emptied(item) for item in value) if isinstance(value, tuple) else NOTHING


def _bare_model(model: Configured, keeps_last: bool) -> Configured:
    """The model with nothing in it. If the last block has another output width, its skeleton is kept."""
    try:
        if keeps_last:
            body = (skeleton(model.config.body[-1]),)
            return Configured(model.type, replace(model.config, body=body))
        names = [name for name, field in model.type.fields.items() if field.role == "block"]
        emptied = dict.fromkeys(names, (NOTHING,))
        if model.type.name == "encoder_decoder":  # one without a block that reads the memory is not valid
            emptied["decoder"] = (_reader(model.config.width),)
        return Configured(model.type, replace(model.config, **emptied))
    except ValueError as error:
        raise CannotCompose(f"{model.type.name} with nothing in it is not a valid model: {error}") from error


def _reader(width: int) -> Configured:
    """The smallest block that reads the memory; `nas.latency.bench` removes it from a model before it is timed."""
    config = AttentionConfig(dim=width, causal=True, memory=True, heads=1, over="memory")
    return Configured(block_type("attention"), config)


def _reads_memory(block: Configured) -> bool:
    """Whether a block, or one inside it, reads the output of an encoder."""
    below = (each for each in configured_below(block) if each.type.role == "block")
    return any(each.type.module.capabilities.cross and _is_over_memory(each) for each in below)


def _is_over_memory(block: Configured) -> bool:
    return getattr(block.config, "over", "memory") == "memory"


NOTHING = Configured(block_type("sequence"), SequenceConfig(of=()))
NOWHERE = Configured(block_type("none", "position"), block_type("none", "position").config(dim=0))


def _is_heard(position: Configured) -> bool:
    """Whether blocks use the position: one that is only added to the input does not concern them."""
    module = position.type.module
    return module.rotate is not NoPosition.rotate or module.bias is not NoPosition.bias
