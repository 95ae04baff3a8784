"""Whether the values of each block fit together, in the words of its own configuration.

A block with holes of which no values fit together, whatever the width, could be in no architecture, so it is refused
too; where some fit, sampling draws none of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from searchspace import registry, schema, window_growth
from searchspace.contract import Given
from searchspace.errors import Problem
from searchspace.references import PathOf
from searchspace.registry import LOOKS_AHEAD, BlockType, Role
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value, has_holes

TRIES = 2000  # combinations, before a value is taken to fit
RANGE = 64  # numbers that are all tried; of a longer range its ends


def problems(
    block: Block, path_of: PathOf = lambda _: "", given: Given | None = None, role: Role = "model"
) -> list[Problem]:
    """What the configurations below `block` say; how blocks with holes fit into one another is left to sampling."""
    kind = registry.block_type(block.name, role)
    handed = _handed(kind, block) if kind.role == "model" else {}
    found: list[Problem] = []
    if kind.role == "block" and given and given.causal and not kind.module.capabilities.causal:
        return [Problem(LOOKS_AHEAD.format(block.name), block.mark, path_of(block))]
    for name, value in block.fields.items():
        below_role = schema.accepts(kind.fields[name].type).role or "block"
        for below in _blocks_in(value):
            found += problems(below, path_of, handed.get(name, given), below_role)
    if not found and has_holes(block) and window_growth.in_vain(block):
        found.append(Problem(window_growth.NO_WINDOW, block.mark, path_of(block)))
    if found or (kind.given and given is None):
        return found
    if any(has_holes(value) for value in (block, *(getattr(given, name) for name in kind.given))):
        if message := _unfit(kind, block, given):
            found.append(Problem(f"No values fit together here. For one: {message}", block.mark, path_of(block)))
        return found
    try:
        registry.configure(block, given, role)
    except (ValueError, ArithmeticError) as error:
        found.append(Problem(str(error), block.mark, path_of(block)))
    return found


def _handed(kind: BlockType, model: Block) -> Mapping[str, Given | None]:
    """What `model` hands to the blocks in its fields; its width may be a hole there."""
    width = model.fields["width"]
    if not has_holes(width):
        return kind.module.given(model.fields)
    return {name: replace(given, dim=width) for name, given in kind.module.given({**model.fields, "width": 1}).items()}


def _blocks_in(value: Value) -> list[Block]:
    """The nearest blocks at or below `value`."""
    match value:
        case Block():
            return [value]
        case tuple():
            return [block for item in value for block in _blocks_in(item)]
        case Choice():
            return [block for option in value.options for block in _blocks_in(option)]
    return []


def _unfit(kind: BlockType, block: Block, given: Given | None) -> str | None:
    """What is wrong with a block of which no values fit together; only of blocks that hold no others."""
    if any(field.role is not None for field in kind.fields.values()):
        return None
    tried: dict[str, tuple[Any, ...]] = {}
    for name, value in {**block.fields, **{name: getattr(given, name) for name in kind.given}}.items():
        if (known := _values(value)) is None:
            return None
        tried[name] = known
    return _error(kind.config, tuple(tried.items()))


@lru_cache(maxsize=4096)  # a space often has the same block in many places
def _error(config: Any, tried: tuple[tuple[str, tuple[Any, ...]], ...]) -> str | None:
    """What `config` says against the first combination, when it has something against every one."""
    first = None
    names = [name for name, _ in tried]
    combinations = itertools.product(*(values for _, values in tried))  # the width turns fastest
    for values in itertools.islice(combinations, TRIES):
        try:
            config(**dict(zip(names, values, strict=True)))
        except (ValueError, ArithmeticError) as error:
            first = first or str(error)
        else:
            return None
    return None if next(combinations, None) is not None else first


def _values(value: Value) -> tuple[Any, ...] | None:
    """What a scalar or a hole for one may be; None where it is not known here."""
    match value:
        case Choice():
            known = [values for option in value.options if (values := _values(option)) is not None]
            return tuple(itertools.chain.from_iterable(known)) if len(known) == len(value.options) else None
        case Integers():
            every = range(value.low, value.high + 1, value.step)
            return tuple(every) if len(every) <= RANGE else (value.low, value.high)
        case Floats():
            return tuple({value.low: None, value.high: None})
        case Same() | Block() | tuple():
            return None
    return (value,)
