"""An architecture as lines of a tree, computed only from its text: a picture without torch and without costs.

With torch, the process of the explorer computes these lines with their costs, see `dashboards.explorer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchspace.language import documents
from searchspace.language.documents import Tagged
from searchspace.lines import Row

MOST_LINES = 400
FAMILIES = {  # by a part of the block's name
    "attention": "attention",
    "convolution": "convolution",
    "gru": "recurrence",
    "lstm": "recurrence",
    "recurren": "recurrence",
    "feed_forward": "feedforward",
    "norm": "norm",
    "rotary": "position",
    "sinusoidal": "position",
}
LISTS = ("body", "of", "encoder", "decoder", "branches", "blocks", "layers", "norm", "position")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the tree. count: how many copies follow one another. cost: by name, {} if it is unknown."""

    depth: int
    label: str
    family: str = ""
    count: int = 1
    cost: dict[str, float] = field(default_factory=dict)


def line_of(row: Row) -> Line:
    """A line with its costs."""
    cost: dict[str, float] = {"flops": row.cost.expected_flops, "parameters": row.cost.parameters}
    cost["state_bytes"] = row.cost.state_bytes
    family = row.family if row.family not in ("combinators", "models", "backbones") else ""
    return Line(depth=row.depth, label=row.label, family=family, count=row.count, cost=cost)


def outline(text: str, most: int | None = MOST_LINES) -> list[Line]:
    """The first `most` lines of an architecture or a space. Raises SpaceError if it is not valid YAML of a space."""
    data = documents.parse(text, tags=("!choice", "!int", "!float", "!same")).data
    if not isinstance(data, dict):
        return [Line(depth=0, label=_plain(data))]
    lines = list(_block(str(data.get("kind", "architecture")), {k: v for k, v in data.items() if k != "kind"}, 0, 1))
    return lines[:most]


def _block(name: str, options: Any, depth: int, count: int) -> Iterator[Line]:
    fields = options if isinstance(options, dict) else {}
    inner = {key: value for key, value in fields.items() if _holds_blocks(key, value)}
    words = [name, *(f"{key}={_plain(value)}" for key, value in fields.items() if key not in inner)]
    if options is not None and not isinstance(options, dict):
        words.append(_plain(options))
    yield Line(depth=depth, label=" ".join(words), family=family_of(name), count=count)
    for value in inner.values():
        if isinstance(value, list):
            yield from _list(value, depth + 1)
        else:
            yield from _one(value, depth + 1, 1)


def _holds_blocks(key: str, value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(each, dict | list) or key in LISTS for each in value)
    return (isinstance(value, dict) and len(value) == 1) or (key == "of" and isinstance(value, str))


def _list(values: Sequence[Any], depth: int) -> Iterator[Line]:
    """The blocks of a list; a repeated group of blocks is shown once."""
    start = 0
    while start < len(values):
        period, count = _repetition(values[start : start + 400])
        group = values[start : start + period]
        start += period * count
        if period > 1:
            yield Line(depth=depth, label="repeat", count=count)
            for each in group:
                yield from _one(each, depth + 1, 1)
        else:
            yield from _one(group[0], depth, count)


def _one(value: Any, depth: int, count: int) -> Iterator[Line]:
    if isinstance(value, dict) and len(value) == 1:
        name, options = next(iter(value.items()))
        yield from _block(str(name), options, depth, count)
    elif isinstance(value, list):
        yield Line(depth=depth, label="sequence", count=count)
        yield from _list(value, depth + 1)
    else:
        yield Line(depth=depth, label=_plain(value), family=family_of(str(value)), count=count)


def _repetition(values: Sequence[Any]) -> tuple[int, int]:
    best = (1, 1)
    for period in range(1, min(len(values) // 2, 12) + 1):
        count = 1
        while values[count * period : (count + 1) * period] == values[:period]:
            count += 1
        if count > 1 and period * count > best[0] * best[1]:
            best = (period, count)
    return best


def family_of(name: str) -> str:
    """The family of a block, guessed from its name; empty if the name says nothing."""
    return next((family for part, family in FAMILIES.items() if part in name), "")


def _plain(value: Any) -> str:
    if isinstance(value, Tagged):
        return f"{value.tag} {_plain(value.value)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return str(value)
