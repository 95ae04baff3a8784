"""Whether the values of each block fit together, in the words of its own configuration."""

from __future__ import annotations

from searchspace import registry, schema, window_growth
from searchspace.contract import Given
from searchspace.errors import Problem
from searchspace.references import PathOf
from searchspace.registry import BlockType, Role
from searchspace.tree import Block, Choice, Value, has_holes


def problems(
    block: Block, path_of: PathOf = lambda _: "", given: Given | None = None, role: Role = "model"
) -> list[Problem]:
    """What the configurations below `block` say against their values; blocks with holes are mostly left to sampling."""
    kind = registry.block_type(block.name, role)
    handed: dict[str, Given | None] = {}
    if kind.role == "model":
        try:
            handed = kind.module.given(block.fields)
        except (TypeError, ArithmeticError):  # it computes with a field that is a hole
            handed = dict.fromkeys(block.fields)
    found: list[Problem] = []
    for name, value in block.fields.items():
        below_role = schema.accepts(kind.fields[name].type).role or "block"
        for below in _blocks_in(value):
            found += problems(below, path_of, handed.get(name, given), below_role)
    if not found and has_holes(block) and window_growth.in_vain(block):
        found.append(Problem(window_growth.NO_WINDOW, block.mark, path_of(block)))
    if not found and not has_holes(block) and _is_known(kind, given):
        try:
            registry.configure(block, given, role)
        except (ValueError, ArithmeticError) as error:
            found.append(Problem(str(error), block.mark, path_of(block)))
    return found


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


def _is_known(kind: BlockType, given: Given | None) -> bool:
    return not kind.given or (given is not None and not any(has_holes(getattr(given, name)) for name in kind.given))
