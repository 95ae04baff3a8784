"""A figure as plain values, and the names of what it shows. `svg` draws it, and `rows` gives it as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

Mark = Literal["points", "line", "steps", "spans"]
QUIET = -1  # the colour of the background
KNOWN = {
    "flops": "FLOPs of one sequence",
    "training_flops": "FLOPs of one sequence in training",
    "parameters": "Parameters",
    "step_flops": "FLOPs of a training step",
    "state_bytes": "State (bytes)",
    "activation_bytes": "Activations (bytes)",
    "latency": "Latency (ms)",
    "bits_per_byte": "Bits per byte",
    "loss": "Loss",
    "error": "Error",
    "gradient_norm": "Gradient norm",
}
UNITS = {"_tokens_per_second": "tokens/s", "_ms": "ms", "_bytes": "bytes"}  # by the ending of a name


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis. categories: names at 0, 1, 2, ... instead of numbers. bounds: the visible range; None: all."""

    label: str
    log: bool = False
    categories: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points with the same style. All lists are as long as `x`, or empty.

    colour: an index in the palette. low, high: the ends of an interval, of x for `spans` and of y otherwise; of a line,
    the ends of a band. text: the description of each point. links: the address that a click on a point opens. shade:
    numbers shown as colours. None in y is a gap.
    """

    name: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    mark: Mark = "points"
    colour: int = 0
    symbol: str = "circle"
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    text: Sequence[str] = ()
    links: Sequence[str] = ()
    shade: Sequence[float | None] = ()
    shade_label: str = ""
    size: float = 6.0
    dashed: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Figure:
    """A figure.

    note: a sentence below it. brush: the address that a selection of trials opens. empty: the text if there is nothing
    to show.
    """

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series] = field(default_factory=tuple)
    note: str = ""
    height: int = 380
    brush: str = ""
    empty: str = "Nothing to show yet."

    @property
    def is_empty(self) -> bool:
        return not any(len(each.x) for each in self.series)

    def rows(self, most: int = 200) -> list[dict[str, Any]]:
        """The first `most` points as rows of a table."""
        found: list[dict[str, Any]] = []
        several = len(self.series) > 1
        for series in self.series:
            for place in range(min(len(series.x), most - len(found))):
                found.append(({"series": series.name} if several else {}) | self._row(series, place))
        return found

    def _row(self, series: Series, place: int) -> dict[str, Any]:
        row: dict[str, Any] = {"point": series.text[place]} if series.text else {}
        row |= {_name(self.x): _value(self.x, series.x[place]), _name(self.y, self.x): _value(self.y, series.y[place])}
        if series.low:
            row |= {"low": series.low[place], "high": series.high[place]}
        return row | ({series.shade_label: series.shade[place]} if series.shade else {})

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "title": self.title,
            "x": vars(self.x),
            "y": vars(self.y),
            "note": self.note,
            "series": [{name: value for name, value in vars(each).items() if value != ()} for each in self.series],
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Heat:
    """Numbers in a grid, shown as colours and as text in the cells. z[row][column]; None is an empty cell."""

    title: str
    x: Axis
    y: Axis
    z: Sequence[Sequence[float | None]]
    label: str
    note: str = ""
    brush: ClassVar[str] = ""
    empty: str = "Nothing to show yet."

    @property
    def is_empty(self) -> bool:
        return not any(len(row) for row in self.z)

    def rows(self, most: int = 200) -> list[dict[str, Any]]:
        """The first `most` cells that are not empty as rows of a table."""
        found = [
            {_name(self.y): self.y.categories[i], _name(self.x): self.x.categories[j], self.label: value}
            for i, row in enumerate(self.z)
            for j, value in enumerate(row)
            if value is not None
        ]
        return found[:most]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"title": self.title, "x": vars(self.x), "y": vars(self.y), "z": self.z, "label": self.label}


def _name(axis: Axis, other: Axis | None = None) -> str:
    name = axis.label or "name"
    return f"{name} (y)" if other is not None and name == _name(other) else name


def _value(axis: Axis, value: float | None) -> Any:
    if axis.categories and value is not None and 0 <= round(value) < len(axis.categories):
        return axis.categories[round(value)]
    return value


def labelled(name: str) -> str:
    """The name of an objective or a metric on an axis: bits_per_byte becomes Bits per byte."""
    if name in KNOWN:
        return KNOWN[name]
    for ending, unit in UNITS.items():
        if name.endswith(ending) and name != ending:
            return f"{labelled(name.removesuffix(ending))} ({unit})"
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def written(value: Any) -> str:
    """The value of a hole as in YAML: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
