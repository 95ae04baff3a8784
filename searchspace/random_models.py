"""Random models of all registered blocks, for tests of properties that every model must have.

New blocks are included automatically.
"""

from __future__ import annotations

import random
from dataclasses import MISSING
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from searchspace.contract import Given
from searchspace.registry import Blocks, BlockType, Configured, Field, Role, block_type, block_types
from searchspace.window_growth import GROWTH, REPEAT, WINDOW

FROM_A_MODEL = {"memory", "final"}  # the lanes that a block alone may read
TRIES = 20  # how often to draw fields that fit together before defaults are used


def random_model(rng: random.Random, name: str, width: int = 16, **fields: Any) -> Configured:
    """A model called `name` with the given `fields`. Blocks, norms and positions that are not given are drawn."""
    kind = block_type(name, "model")
    open_fields = [field for field in kind.fields.values() if field.role is not None and field.name not in fields]
    while True:
        try:
            drawn: dict[str, Any] = {}
            for field in open_fields:  # in order, because the final norm has the width of the body's output
                below = kind.module.given({"width": width, **fields, **drawn})
                drawn[field.name] = _blocks(rng, field, below[field.name], depth=2)
            return Configured(kind, kind.config(width=width, **drawn, **fields))
        except ValueError:
            continue  # e.g. a decoder that ignores its encoder, or a block that needs an encoder: draw again


def random_block(rng: random.Random, given: Given, role: Role = "block", depth: int = 2) -> Configured:
    """A block of `role` that fits `given`, at most `depth` blocks deep."""
    kinds = [
        kind for kind in block_types(role).values() if _fits(kind, given) and (depth > 1 or not _holds_blocks(kind))
    ]
    kind = rng.choice(kinds)
    surroundings = {name: getattr(given, name) for name in kind.given}
    scalars = [field for field in kind.fields.values() if field.holds is None]
    below: dict[str, Any] = {}
    for _ in range(TRIES):
        below = {f.name: _blocks(rng, f, given, depth - 1) for f in kind.fields.values() if f.holds is not None}
        values = {field.name: _scalar(rng, field, role) for field in scalars}
        if kind.name == REPEAT and rng.random() < 0.25:  # otherwise there is almost never a window that can grow
            below["of"] = (_with_window(rng, given),)
            values |= {GROWTH: 2, "share_weights": False, "signal": "none"}
        try:
            found = Configured(kind, kind.config(**surroundings, **below, **values))
        except ValueError:
            continue  # values that do not fit together: draw again
        if role != "block" or not set(kind.module.reads(found.config)) - FROM_A_MODEL:
            return found
    needed = {field.name: _scalar(rng, field, role) for field in scalars if field.default is MISSING}
    return Configured(kind, kind.config(**surroundings, **below, **needed))


def _blocks(rng: random.Random, field: Field, given: Given, depth: int) -> Any:
    if field.default is None and rng.random() < 0.75:
        return None
    if not field.many:
        return random_block(rng, given, field.holds or "block", depth)
    if field.type == Blocks:
        return tuple(random_block(rng, given, "block", depth) for _ in range(rng.choice((0, 1, 1, 2, 2))))
    branches = rng.randint(1, 3)
    return tuple((random_block(rng, given, "block", depth),) * rng.randint(1, 2) for _ in range(branches))


def _with_window(rng: random.Random, given: Given) -> Configured:
    kinds = [kind for kind in block_types("block").values() if WINDOW in kind.fields and _fits(kind, given)]
    kind = rng.choice(kinds)
    surroundings = {name: getattr(given, name) for name in kind.given}
    return Configured(kind, kind.config(**surroundings))


def _scalar(rng: random.Random, field: Field, role: Role) -> Any:
    if get_origin(field.type) is Literal:
        return rng.choice(get_args(field.type))
    if field.type is bool:
        return rng.random() < 0.5
    if field.type is str:
        return f"name{rng.randrange(10**9)}"
    if field.default is MISSING:
        return rng.randint(2, 3)
    whole = field.type is int or NoneType in get_args(field.type)
    # Small numbers find most errors. But the table of a position, and of other large defaults, needs a row for every
    # position of the sequence.
    small = role != "position" and (not isinstance(field.default, int) or field.default < 100)
    return rng.choice((field.default, 1, 2, 3)) if whole and small else field.default


def _fits(kind: BlockType, given: Given) -> bool:
    return kind.role != "block" or not given.causal or kind.module.capabilities.causal


def _holds_blocks(kind: BlockType) -> bool:
    return any(field.role == "block" for field in kind.fields.values())
