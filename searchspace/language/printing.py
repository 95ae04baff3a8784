"""Trees as YAML that reads well: defaults left out, small blocks on one line, and the same tree when read again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import yaml

from searchspace import registry
from searchspace.language import schema
from searchspace.language.constraints import Constraint
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Value

WIDTH = 110
_UNITS = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True)
class _Tagged:
    """A value under a tag; the value is a dict, a list or the text of a scalar."""

    tag: str
    value: Any


def render(root: Block, constraints: Iterable[Constraint] = ()) -> str:
    """The YAML of a model, with or without holes; `language.parse` reads the same model from it."""
    written: dict[str, Any] = {"kind": root.name} | _fields(root)
    bounds = {constraint.quantity: _bound(constraint) for constraint in constraints}
    if bounds:
        written["constraints"] = bounds
    return "\n".join(_lines(written, "", top=True)) + "\n"


def scalar(value: Any) -> str:
    """A scalar as YAML, so that other readers of YAML take it for the same thing."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return yaml.safe_dump(value).removesuffix("...\n").strip()
    plain = yaml.safe_dump(value, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
    # Y and n are words to PyYAML and booleans to others.
    if "\n" in plain or value.lower() in ("y", "n"):
        return yaml.safe_dump(value, width=10**6, default_style='"').strip()
    return plain


def _fields(block: Block) -> dict[str, Any]:
    known = registry.block_type(block.name).fields
    return {name: _value(value, known[name].type) for name, value in schema.written(block).items()}


def _block(block: Block) -> Any:
    written = _fields(block)
    if not written:
        return block.name
    # Just `of` stands for the fields, as it will when the block has more of them; other fields are always named.
    if written.keys() == {"of"} and not isinstance(written["of"], dict):
        return {block.name: written["of"]}
    return {block.name: written}


def _value(value: Value, type_: Any) -> Any:
    shape = schema.accepts(type_).shape
    if shape == "branches" and isinstance(value, tuple):
        return [_blocks(branch) for branch in value]
    if shape == "blocks" and isinstance(value, tuple):
        return _blocks(value)
    return _one(value)


def _blocks(value: Any) -> Any:
    return _one(value[0]) if len(value) == 1 else [_one(item) for item in value]


def _one(value: Any) -> Any:
    match value:
        case Block():
            return _block(value)
        case Same():
            return _Tagged("!same", scalar(value.name))
        case Choice() | Integers() | Floats():
            return _hole(value)
    return scalar(value)


def _hole(hole: Hole) -> _Tagged:
    if isinstance(hole, Choice):
        written: dict[str, Any] = {"options": [_option(option) for option in hole.options]}
        rest: tuple[str, ...] = ("name", "each")
    else:
        written = {"low": scalar(hole.low), "high": scalar(hole.high)}
        rest = ("step", "log", "name", "each")
    defaults = {f.name: f.default for f in fields(hole)}
    for name in rest:
        if getattr(hole, name) != defaults[name]:
            written[name] = scalar(getattr(hole, name))
    tag = {Choice: "!choice", Integers: "!int", Floats: "!float"}[type(hole)]
    if written.keys() == {"options"}:
        return _Tagged(tag, written["options"])
    if written.keys() == {"low", "high"}:
        return _Tagged(tag, list(written.values()))
    return _Tagged(tag, written)


def _option(option: Value) -> Any:
    if not isinstance(option, tuple):
        return _one(option)
    return [_one(item) for item in option] if len(option) != 1 else _blocks(option)


def _bound(constraint: Constraint) -> dict[str, str]:
    units = _BINARY if "bytes" in constraint.quantity else _UNITS
    bounds = {"min": constraint.low, "max": constraint.high}
    return {name: _size(bound, units) for name, bound in bounds.items() if bound is not None}


def _size(bound: float, units: tuple[tuple[str, int], ...]) -> str:
    for unit, size in units:
        if bound and bound % size == 0:
            return f"{int(bound) // size}{unit}"
    return scalar(bound)


def _lines(value: Any, indent: str, *, top: bool = False) -> list[str]:
    """A dict or list, one entry a line or more."""
    lines: list[str] = []
    entries = [("-", item) for item in value] if isinstance(value, list) else [(f"{k}:", v) for k, v in value.items()]
    for head, item in entries:
        tag, body = (f" {item.tag}", item.value) if isinstance(item, _Tagged) else ("", item)
        flat = _flow(item)
        fits = len(indent) + len(head) + 1 + len(flat) <= WIDTH and _is_small(item, top=top)
        opens = head == "-" and isinstance(item, dict)  # `- name: ...` rather than `- {name: ...}`
        if not isinstance(body, (dict, list)) or not body or (fits and not opens):
            lines.append(f"{indent}{head} {flat}")
        elif head == "-" and not tag:
            inner = _lines(body, indent + "  ")
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines += [f"{indent}{head}{tag}", *_lines(body, indent + "  ")]
    return lines


def _flow(value: Any) -> str:
    match value:
        case _Tagged():
            return f"{value.tag} {_flow(value.value)}"
        case dict():
            return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_flow, value)) + "]"
    return value


def _is_small(value: Any, *, top: bool = False) -> bool:
    """Whether it reads well on one line: blocks in blocks a little way, but no list of blocks that have fields."""
    return _depth(value) <= (1 if top else 3)


def _depth(value: Any) -> int:
    match value:
        case _Tagged():
            return _depth(value.value) if _depth(value.value) > 1 else 0  # `!choice [2, 4]` reads like a scalar
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return 1 + 9 * max(map(_depth, value), default=0)
    return 0
