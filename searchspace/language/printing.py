"""Prints trees as readable YAML: small blocks on one line, defaults left out unless asked for.

Reading the text again gives the same tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import yaml

from searchspace import registry
from searchspace.language import definitions, schema
from searchspace.language.constraints import Constraint
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Value, kept

WIDTH = 110
_UNITS = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


@dataclass(frozen=True)
class _Tagged:
    """A value with a tag. The value is a dict, a list or the text of a scalar."""

    tag: str
    value: Any


def render(root: Block, constraints: Iterable[Constraint] = (), *, defaults: bool = False) -> str:
    """The YAML of a model, with or without holes; `language.parse` reads the same model from it.

    `defaults` also writes the fields that are at their default.
    """
    printer = _Printer(defaults)
    written: dict[str, Any] = {"kind": root.name}
    if defined := definitions.of(root):
        written["define"] = {name: printer.blocks(blocks) for name, blocks in defined.items()}
    written |= printer.fields(root)
    bounds = {constraint.quantity: _bound(constraint) for constraint in constraints}
    if bounds:
        written["constraints"] = bounds
    return "\n".join(_lines(written, "", top=True)) + "\n"


def scalar(value: Any) -> str:
    """A scalar as YAML text that every YAML reader understands in the same way."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    return _number(repr(value)) if isinstance(value, float) else _text(value)


@lru_cache(maxsize=4096)  # a space has thousands of scalars, most of them equal
def _number(digits: str) -> str:
    return yaml.safe_dump(float(digits)).removesuffix("...\n").strip()


@lru_cache(maxsize=4096)
def _text(value: str) -> str:
    plain = yaml.safe_dump(value, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
    # PyYAML reads y and n as text, other readers as booleans.
    if "\n" in plain or value.lower() in ("y", "n"):
        return yaml.safe_dump(value, width=10**6, default_style='"').strip()
    return plain


@dataclass(frozen=True)
class _Printer:
    """Turns a tree into plain data whose scalars are YAML text. `defaults`: whether to write default values."""

    defaults: bool = False

    def fields(self, block: Block) -> dict[str, Any]:
        known = registry.block_type(block.name).fields
        shown = block.fields if self.defaults else schema.written(block)
        return {name: self.value(value, known[name].type) for name, value in shown.items()}

    def block(self, block: Block) -> Any:
        return self._block(block) if self.defaults else _short(block)

    def _block(self, block: Block) -> Any:
        if block.name == definitions.USE:
            return {block.name: scalar(block.fields["name"])}
        written = self.fields(block)
        if not written:
            return block.name
        # A lone `of` is written without its name, which also works once the block has more fields. Others keep theirs.
        if written.keys() == {"of"} and not isinstance(written["of"], dict):
            return {block.name: written["of"]}
        return {block.name: written}

    def value(self, value: Value, type_: Any) -> Any:
        shape = schema.accepts(type_).shape
        if shape == "branches" and isinstance(value, tuple):
            return [self.blocks(branch) for branch in value]
        if shape == "blocks" and isinstance(value, tuple):
            return self.blocks(value)
        return self.one(value)

    def blocks(self, value: Any) -> Any:
        return self.one(value[0]) if len(value) == 1 else [self.one(item) for item in value]

    def one(self, value: Any) -> Any:
        match value:
            case Block():
                return self.block(value)
            case Same():
                return _Tagged("!same", scalar(value.name))
            case Choice() | Integers() | Floats():
                return self.hole(value)
        return scalar(value)

    def hole(self, hole: Hole) -> _Tagged:
        if isinstance(hole, Choice):
            written: dict[str, Any] = {"options": [self.option(option) for option in hole.options]}
            rest: tuple[str, ...] = ("name", "each")
        else:
            written = {"low": scalar(hole.low), "high": scalar(hole.high)}
            rest = ("step", "log", "name", "each")
        defaults = {f.name: f.default for f in fields(hole)}
        for name in rest:
            if getattr(hole, name) != defaults[name] and not definitions.is_tie(hole.name if name == "name" else None):
                written[name] = scalar(getattr(hole, name))
        tag = {Choice: "!choice", Integers: "!int", Floats: "!float"}[type(hole)]
        if written.keys() == {"options"}:
            return _Tagged(tag, written["options"])
        if written.keys() == {"low", "high"}:
            return _Tagged(tag, list(written.values()))
        return _Tagged(tag, written)

    def option(self, option: Value) -> Any:
        if not isinstance(option, tuple):
            return self.one(option)
        return [self.one(item) for item in option] if len(option) != 1 else self.blocks(option)


@kept
def _short(block: Block) -> Any:
    return _Printer()._block(block)


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
    """The lines of a dict or list: one line or more for each entry."""
    lines: list[str] = []
    entries = [("-", item) for item in value] if isinstance(value, list) else [(f"{k}:", v) for k, v in value.items()]
    for head, item in entries:
        tag, body = (f" {item.tag}", item.value) if isinstance(item, _Tagged) else ("", item)
        opens = head == "-" and isinstance(item, dict)  # `- name: ...` rather than `- {name: ...}`
        scalar_or_empty = not isinstance(body, (dict, list)) or not body
        if scalar_or_empty or (not opens and _is_small(item, top=top) and _fits(item, len(indent) + len(head) + 1)):
            lines.append(f"{indent}{head} {_flow(item)}")
        elif head == "-" and not tag:
            inner = _lines(body, indent + "  ")
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines += [f"{indent}{head}{tag}", *_lines(body, indent + "  ")]
    return lines


def _fits(value: Any, before: int) -> bool:
    """Whether `value` on one line, behind `before` characters, is narrow enough."""
    return before + len(_flow(value)) <= WIDTH


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
    """Whether `value` is readable on one line: a few nested blocks are, a list of blocks with fields is not."""
    return _depth(value) <= (1 if top else 3)


def _depth(value: Any) -> int:
    match value:
        case _Tagged():
            return depth if (depth := _depth(value.value)) > 1 else 0  # `!choice [2, 4]` reads like a scalar
        case dict():
            return 1 + max(map(_depth, value.values()), default=0)
        case list():
            return 1 + 9 * max(map(_depth, value), default=0)
    return 0
