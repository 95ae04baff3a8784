"""Splits an architecture into pieces that are measured once and occur in other architectures too.

A block that holds other blocks is split into its skeleton (the block with nothing in it) and those blocks. So the time
of a model is the sum of the times of its skeletons and leaves, times their numbers of calls. A block that cannot be
split is one piece with everything in it: one whose depth depends on the data, or that changes the length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import groupby
from typing import Any

from searchspace.combinators.sequence import SequenceConfig
from searchspace.cost import Shape
from searchspace.parts import Composite, Part
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import Configured, block_type, recorded_name, recorded_option
from searchspace.window_growth import GROWTH


class CannotCompose(ValueError):
    """The model is not a sum of pieces, so it has to be measured as a whole."""


@dataclass(frozen=True)
class Piece:
    """A block on an input of `length` positions and `width` channels, or a model with nothing in it (`position` None).

    It holds everything that the time of the block depends on and nothing else, so equal pieces of different models
    compare equal.
    """

    block: Configured
    length: int
    width: int
    position: Configured | None

    @property
    def is_model(self) -> bool:
        return self.position is None

    def text(self) -> str:
        """Canonical JSON."""
        return json.dumps(written(self), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Call:
    """One call of a piece. again: the backward pass calls it once more, because the forward pass kept nothing."""

    piece: Piece
    again: bool = False


def written(value: Any) -> Any:
    """A configuration as plain data, including the values that its surroundings filled in."""
    if isinstance(value, Configured):
        named = {recorded_option(value.type.name, name): each for name, each in written(value.config).items()}
        return {recorded_name(value.type.name): named}
    if is_dataclass(value):
        return {field.name: written(getattr(value, field.name)) for field in fields(value)}
    return [written(item) for item in value] if isinstance(value, tuple) else value


def calls(model: Configured, length: int) -> list[Call]:
    """The calls of pieces when a model reads `length` positions, in order.

    Raises CannotCompose if the model is not a sum of pieces.
    """
    config = model.config
    parts = [part for part in model.type.module.parts(config, Shape(length=length)) if _is_block(part)]
    wide = len(parts) - 1 if getattr(config, "width_after", config.width) != config.width else None
    found = [Call(Piece(_bare_model(model, wide is not None), length, config.width, None))]
    for number, part in enumerate(parts):
        for block, again in _below(part, False, is_there=number == wide):
            heard = not block.type.module.capabilities.pointwise and _is_heard(config.position)
            position = config.position if heard else NOWHERE
            found.append(Call(Piece(block, part.shape.length, config.width, position), again))
    return found


def _below(part: Part, again: bool, *, is_there: bool = False) -> Iterator[tuple[Configured, bool]]:
    """The skeletons and leaves of one call of a part, in order. is_there: its skeleton is already counted."""
    block = part.block
    assert block is not None
    below = _parts(block, part.shape)
    if not is_there:
        yield block if below is None else skeleton(block), again
    elif below is None:
        raise CannotCompose(f"{block.type.name} has another output width.")
    inner = [each for each in below or () if _is_block(each)]
    for count, same in groupby(inner, key=lambda each: each.count):
        cycle = [call for each in same for call in _below(each, again or each.recomputed)]
        yield from cycle * count


def _parts(block: Configured, shape: Shape) -> list[Part] | None:
    """The parts of a block whose time is its own plus that of its parts; None for other blocks."""
    if not issubclass(block.type.module, Composite):
        return None
    parts = block.type.module.parts(block.config, shape)
    same = replace(shape, normed=False)  # what stands before a block does not matter to its time
    whole = all(part.expected is None and replace(part.shape, normed=False) == same for part in parts)
    return parts if whole else None


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
        return Configured(model.type, replace(model.config, **dict.fromkeys(names, (NOTHING,))))
    except ValueError as error:
        raise CannotCompose(f"{model.type.name} with nothing in it is not a valid model: {error}") from error


NOTHING = Configured(block_type("sequence"), SequenceConfig(of=()))
NOWHERE = Configured(block_type("none", "position"), block_type("none", "position").config(dim=0))


def _is_heard(position: Configured) -> bool:
    """Whether blocks use the position: one that is only added to the input does not concern them."""
    module = position.type.module
    return module.rotate is not NoPosition.rotate or module.bias is not NoPosition.bias


def in_evaluation(value: Any) -> Any:
    """The same configuration without dropout, which has no effect outside of training."""
    if isinstance(value, tuple):
        return tuple(in_evaluation(item) for item in value)
    if not isinstance(value, Configured):
        return value
    changes: dict[str, Any] = {}
    for field in fields(value.config):
        inner = getattr(value.config, field.name)
        changes[field.name] = 0.0 if field.name == "dropout" else in_evaluation(inner)
    return Configured(value.type, replace(value.config, **changes))
