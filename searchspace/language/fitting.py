"""Checks that the values of each block fit together. The messages are those of the block's configuration.

A block is rejected if none of its combinations of values is valid for any width. A value of a hole is rejected if
it is not valid with any of the surrounding values (`support` describes how far the search goes). A value that is valid
with some of them stays, and sampling avoids the invalid combinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from searchspace import registry, window_growth
from searchspace.contract import Given
from searchspace.errors import Problem
from searchspace.language import schema, support
from searchspace.language.references import PathOf
from searchspace.language.support import OPEN, Filling, Fillings
from searchspace.parts import Misplaced
from searchspace.registry import LOOKS_AHEAD, BlockType, Configured, Role
from searchspace.rotation import check_position
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Value, has_holes

GivenBy = Mapping[str, Given | None]
EFFORT = 50_000  # combinations to try in one description; after them, what is not yet known counts as valid


@dataclass(frozen=True)
class _Around:
    """The surroundings of a block.

    given: the values that the model hands down; the width may be a hole. positions: possible positions of the model;
    None if they are not known.
    """

    given: Given | None = None
    positions: tuple[Block, ...] | None = None


def problems(
    block: Block, path_of: PathOf = lambda _: "", given: Given | None = None, role: Role = "model"
) -> list[Problem]:
    """The problems of all configurations in `block`. `path_of` returns the path of a node."""
    reading = _Reading(path_of, Fillings(dict(_named(block))))
    return reading.block(block, role, _Around(given))


@dataclass
class _Reading:
    path_of: PathOf
    fillings: Fillings
    sound: set[Any] = field(
        default_factory=set
    )  # blocks without problems, because a space often has the same block in many places
    made: dict[Any, Configured] = field(default_factory=dict)  # of equal blocks without holes, for the same reason
    spent: int = 0  # combinations that were tried

    def block(self, block: Block, role: Role, around: _Around) -> list[Problem]:
        kind, given = registry.block_type(block.name, role), around.given
        if kind.role == "block" and given and given.causal and not kind.module.able(block.fields).causal:
            return [Problem(LOOKS_AHEAD.format(block.name), block.mark, self.path_of(block))]
        found: list[Problem] = []
        for name, value, within in self.below(kind, block, around):
            for below in _blocks_in(value):
                found += self.block(below, schema.accepted(kind.fields[name]).role or "block", within)
        if not found and has_holes(block) and window_growth.grows_nothing(block):
            found.append(Problem(window_growth.NO_WINDOW, block.mark, self.path_of(block)))
        if found or (kind.given and given is None):
            return found
        reads = kind.given if kind.holds_no_blocks else kind.given | {"dim"}  # a container hands the width on
        if any(has_holes(value) for value in (block, *(getattr(given, name) for name in reads if given))):
            return self.open_once(kind, block, around)
        try:
            registry.configure(block, given, role, self.made)
        except (ValueError, ArithmeticError) as error:
            at = _at(block, error.steps) if isinstance(error, Misplaced) else block
            message = error.message if isinstance(error, Misplaced) else str(error)
            found.append(Problem(message, at.mark, self.path_of(at)))
        return found

    def below(self, kind: BlockType, block: Block, around: _Around) -> Iterator[tuple[str, Value, _Around]]:
        """(name, value, surroundings of the blocks inside) of each field."""
        if kind.role != "model":
            yield from ((name, value, around) for name, value in block.fields.items())
            return
        handed, positions = _handed(kind, block), self.positions(kind, block)
        for name, value in block.fields.items():
            yield name, value, _Around(handed.get(name), positions)

    def positions(self, kind: BlockType, model: Block) -> tuple[Block, ...] | None:
        """The possible positions of a model; None if they cannot be listed."""
        values = [value for name, value in model.fields.items() if kind.fields[name].role == "position"]
        ways = self.fillings.of(values[0]) if values else None
        blocks = tuple(way.value for way in ways or ())
        return blocks if blocks and all(type(value) is Block for value in blocks) else None

    def open_once(self, kind: BlockType, block: Block, around: _Around) -> list[Problem]:
        """As `open`, but equal blocks in equal surroundings are checked only once."""
        if any(isinstance(value, Block | tuple) for value in block.fields.values()):
            return self.open(kind, block, around)
        key = (kind.name, kind.role, tuple(block.fields.items()), around.given, id(around.positions))
        if key in self.sound:
            return []
        if not (found := self.open(kind, block, around)):
            self.sound.add(key)
        return found

    def open(self, kind: BlockType, block: Block, around: _Around) -> list[Problem]:
        """The problems of a block that has holes, or whose width is a hole."""
        fields = dict(self.fillings.fields(block))
        # An invalid width is reported for the model, not for the block: other blocks may accept the width.
        widths = self.fillings.of(around.given.dim) if around.given else [Filling(None)]
        parts: list[Sequence[Filling]] = [*fields.values(), [Filling(way.value) for way in widths or [Filling(OPEN)]]]

        def attempt(values: tuple[Any, ...]) -> str | None:
            self.spent += 1
            if self.spent > EFFORT:
                raise support.Undecided
            *inner, width = values
            given = replace(around.given, dim=width) if around.given else None
            filled = Block(block.name, dict(zip(fields, inner, strict=True)), block.mark)
            return _against(kind, filled, given, around.positions) or self.within(kind, block, filled)

        found, reason = support.first_fit(parts, attempt)
        if found is None:
            message = f"No combination of values is valid here. For example: {reason}"
            return [Problem(message, block.mark, self.path_of(block))]
        rejected = support.rejections(parts, attempt, lambda: _holes_in(tuple(block.fields.values())))
        return [each.problem(self.path_of(each.hole)) for each in rejected]

    def within(self, kind: BlockType, model: Block, filled: Block) -> str | None:
        """The first error of the open blocks in `filled`, which is the model with one width and one position."""
        if kind.role != "model":
            return None
        for name, value, within in self.below(kind, filled, _Around()):
            if value is OPEN or (type(value) is tuple and any(item is OPEN for item in value)):
                role = schema.accepted(kind.fields[name]).role or "block"
                if message := self.unfit(model.fields[name], role, within):
                    return message
        return None

    def unfit(self, value: Value, role: Role, around: _Around) -> str | None:
        """Why `value` has no valid filling for one width and one position; None if it has one."""
        match value:
            case Choice():
                reasons = [self.unfit(option, role, around) for option in value.options]
                return reasons[0] if all(reasons) else None
            case tuple():
                return next((reason for item in value if (reason := self.unfit(item, role, around))), None)
            case Block():
                return self.block_unfit(value, role, around)
        return None

    def block_unfit(self, block: Block, role: Role, around: _Around) -> str | None:
        kind = registry.block_type(block.name, role)
        for name, value in block.fields.items():
            if kind.fields[name].role and (message := self.unfit(value, kind.fields[name].role or role, around)):
                return message
        if any(field.role for field in kind.fields.values()):
            return None
        fields = [ways for _, ways in self.fillings.fields(block)]

        def attempt(values: tuple[Any, ...]) -> str | None:
            filled = Block(block.name, dict(zip(block.fields, values, strict=True)), block.mark)
            return _against(kind, filled, around.given, around.positions)

        found, reason = support.first_fit(fields, attempt)
        return reason if found is None else None


def _against(kind: BlockType, block: Block, given: Given | None, positions: tuple[Block, ...] | None) -> str | None:
    """The error of the configuration of `block`, or of positions that cannot rotate its heads; None if it is valid.

    Raises Undecided if that depends on an open block.
    """
    try:
        configured = _configured(kind, block, given)
    except (ValueError, ArithmeticError) as error:
        return str(error)
    if kind.role == "block" and given and given.causal and not kind.module.able(block.fields).causal:
        return LOOKS_AHEAD.format(block.name)
    if kind.role != "block" or not kind.module.capabilities.turned or positions is None:
        return None
    return _not_turned(configured, given, positions)


def _configured(kind: BlockType, block: Block, given: Given | None) -> Configured:
    """As `registry.configure`, but open blocks stay open."""
    known = {name: value for name, value in block.fields.items() if value is not OPEN}
    below = kind.module.given(known) if kind.role == "model" else {}
    values = {name: getattr(given, name) for name in kind.given}
    for name, value in block.fields.items():
        values[name] = _value(value, below.get(name, given), kind.fields[name].holds)
    return Configured(kind, kind.config(**values))


def _value(value: Any, given: Given | None, role: Role | None) -> Any:
    if type(value) is tuple:
        return tuple(_value(item, given, role) for item in value)
    return registry.configure(value, given, role) if type(value) is Block else value


def _not_turned(block: Configured, given: Given | None, positions: tuple[Block, ...]) -> str | None:
    """Why none of `positions` can rotate the heads of `block`; None if one can."""
    first = None
    for position in positions:
        try:
            check_position(registry.configure(position, given, "position"), (block,))
        except (ValueError, ArithmeticError) as error:
            first = first or str(error)
        else:
            return None
    return first


def _handed(kind: BlockType, model: Block) -> GivenBy:
    """What `model` hands down to the blocks in its fields; the width may be a hole."""
    width = model.fields["width"]
    known = {name: value for name, value in model.fields.items() if value is not OPEN}
    if not has_holes(width):
        return kind.module.given(known)
    return {name: replace(given, dim=width) for name, given in kind.module.given({**known, "width": 1}).items()}


def _at(block: Block, steps: Iterable[str | int]) -> Block:
    """The block in `block` to which `steps` lead: names of fields, and places in lists."""
    value: Any = block
    for step in steps:
        value = value.fields[step] if isinstance(step, str) else value[step]
    return value if isinstance(value, Block) else block


def _blocks_in(value: Value) -> list[Block]:
    """The outermost blocks in `value`."""
    match value:
        case Block():
            return [value]
        case tuple():
            return [block for item in value for block in _blocks_in(item)]
        case Choice():
            return [block for option in value.options for block in _blocks_in(option)]
    return []


def _holes_in(value: Value) -> dict[int, Hole]:
    """All holes in `value`, by identity."""
    match value:
        case Choice():
            return {id(value): value} | _holes_in(value.options)
        case Integers() | Floats():
            return {id(value): value}
        case tuple():
            return {key: hole for item in value for key, hole in _holes_in(item).items()}
        case Block():
            return _holes_in(tuple(value.fields.values()))
    return {}


def _named(value: Value) -> Iterator[tuple[str, Hole]]:
    """(name, hole) of all named holes in `value`."""
    return ((hole.name, hole) for hole in _holes_in(value).values() if hole.name is not None)
