"""Every hole of a space that can become active, so that points can be compared as vectors."""

from __future__ import annotations

from searchspace.language.traversal import BODY, Outline, block_path, body_path, field_path, options
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Value


def dimensions(outline: Outline) -> dict[str, Hole]:
    """The holes by path, in document order. A hole drawn for each copy of a repeat is there for the most copies."""
    found: dict[str, Hole] = {}

    def visit(value: Value, path: str, each: str) -> None:
        match value:
            case Block():
                visit_block(value, block_path(path, value), block_path(each, value))
            case tuple():
                for index, item in enumerate(value):
                    visit(item, f"{path}[{index}]", f"{each}[{index}]")
            case Choice() | Integers() | Floats():
                visit_hole(value, each if value.each else path, each)

    def visit_hole(hole: Hole, path: str, each: str) -> None:
        found.setdefault(path, hole)
        for (place, value), (inner, _) in zip(options(hole, path), options(hole, each)):
            if isinstance(value, Block):
                visit_block(value, place, inner)
            else:
                visit(value, place, inner)

    def visit_block(block: Block, place: str, each: str) -> None:
        if not outline.open(block):
            return
        differs = outline.differs(block)
        place = each if differs and outline.anchored(block) else place
        for name, value in block.fields.items():
            if not (differs and name == BODY):
                visit(value, field_path(place, name), field_path(each, name))
        if differs:
            for copy in range(1, outline.most_copies(block) + 1):
                visit(block.fields[BODY], body_path(place), body_path(each, copy))

    visit_block(outline.root, "", "")
    return found
