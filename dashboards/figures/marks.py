"""What all SVG pictures share: elements as text, scales of axes, symbols, colours, and the format of names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

from dashboards.figures.figure import Axis
from nas.report.tables import short

RIGHT, TOP = 16, 14
LETTER = 7.2  # pixels: the width of a letter in a label
FARTHEST = 1e250  # of an end of an axis: the length of an axis with its margins must be finite
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#4aa3df", "#555f6b", "#882255")
SCALE = ("#fde725", "#addc30", "#5ec962", "#28ae80", "#21918c", "#2c728e", "#3b528b", "#472d7b")
STYLE = (  # of a picture in a separate file; the same as in static/style.css
    "svg.figure{font:12px system-ui,sans-serif;background:#fff;color:#1c2128}"
    ".figure text{fill:#3d4653}.figure .grid{stroke:#e3e6ea}.figure .axis{stroke:#98a2b3}"
    ".figure .line{fill:none;stroke-width:2}.figure .band{stroke:none;fill-opacity:.15}"
    ".quiet{color:#98a2b3}.figure .mark{fill:currentColor}"
    ".figure .line,.figure .whisker{stroke:currentColor}.figure .band{fill:currentColor}"
    ".figure .on-light{fill:#111}.figure .on-dark{fill:#fff}"
    + "".join(f".c{place}{{color:{colour}}}" for place, colour in enumerate(COLOURS))
    + "".join(f".s{place}{{color:{colour}}}" for place, colour in enumerate(SCALE))
)


def escaped(text: str) -> str:
    """Text that is valid in HTML and in XML: without control characters."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return escape(plain, quote=True)


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """An element. inside: markup. The attribute `kind` becomes the class, `_` a hyphen; numbers have one decimal."""
    written = "".join(
        f' {"class" if key == "kind" else key.replace("_", "-")}="{_number(value)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def label(text: str, x: float, y: float, anchor: str = "middle", kind: str = "") -> str:
    """A text of one line."""
    own = {"kind": kind} if kind else {}
    return element("text", escaped(text), x=x, y=y, text_anchor=anchor, **own)


def _number(value: str | float) -> str:
    return escaped(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def cut(name: str, most: int = 44) -> str:
    """A name of at most `most` characters. A longer one keeps its start and its end, where paths of holes differ."""
    return name if len(name) <= most else f"{name[: most // 4 - 1]}…{name[most // 4 - most :]}"


def tick_text(value: float) -> str:
    """The text of a tick, without rounding errors."""
    return "0" if abs(value) < 1e-300 else short(float(f"{value:.6g}"))


def shades_of(values: Sequence[float | None]) -> list[int | None]:
    """The step of the colour scale of each value. Each step has equally many values, so outliers take no room."""
    known = sorted(each for each in values if each is not None)
    if not known:
        return [None] * len(values)
    steps = len(SCALE)
    ends = [known[min(len(known) - 1, len(known) * step // steps)] for step in range(1, steps)]
    return [None if each is None else sum(each > end for end in ends) for each in values]


def shape(symbol: str, x: float, y: float, r: float) -> str:
    """The path of a symbol of radius `r` around a point."""
    if symbol == "square":
        return f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}Z"
    if symbol == "diamond":
        r *= 1.3
        return f"M{x:.1f} {y - r:.1f}l{r:.1f} {r:.1f}l{-r:.1f} {r:.1f}l{-r:.1f} {-r:.1f}Z"
    if symbol == "triangle":
        r *= 1.2
        return f"M{x:.1f} {y - r:.1f}l{r:.1f} {1.8 * r:.1f}h{-2 * r:.1f}Z"
    if symbol == "star":
        turns = [(r * (2.0 if i % 2 == 0 else 0.9), -math.pi / 2 + i * math.pi / 5) for i in range(10)]
        return "M" + "L".join(f"{x + s * math.cos(a):.1f} {y + s * math.sin(a):.1f}" for s, a in turns) + "Z"
    return f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0Z"


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def shows(self, value: float) -> bool:
        """Whether the value is between the ends."""
        return self.low <= value <= self.high

    def has(self, value: float) -> bool:
        """Whether the value has a place: it is finite, and positive on a logarithmic axis."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def ticks(self, most: int = 7) -> list[float]:
        """Round values between the ends, about `most` of them at most."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for parts in ((1, 2, 5), (1, 3), (1,)):
                found = [part * 10.0**power for power in range(first, last + 1) for part in parts]
                inside = [each for each in found if self.shows(each)]
                if len(inside) <= most:
                    break
            every = math.ceil(len(inside) / most)
            return inside[::every] if len(inside) >= 2 else replace(self, log=False).ticks(most)
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        rough = 10.0 ** math.floor(math.log10(span / most))
        step = next(rough * each for each in (1, 2, 5, 10) if span / (rough * each) <= most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [each * step for each in range(first, last + 1)]


def scale_of(axis: Axis, values: Iterable[float | None], start: float, end: float) -> Scale:
    """A scale that shows all these values, with a margin at both ends, or the bounds of the axis."""
    if axis.categories:
        low, high = axis.bounds or (-0.5, len(axis.categories) - 0.5)
        return Scale(low, high, start, end)
    known = [each for each in values if each is not None and math.isfinite(each) and (each > 0 or not axis.log)]
    low, high = axis.bounds or ((min(known), max(known)) if known else (1.0, 10.0) if axis.log else (0.0, 1.0))
    low, high = max(low, -FARTHEST), min(high, FARTHEST)
    log = axis.log and low > 0
    if axis.bounds is None:
        if log:
            low = max(low, 1 / FARTHEST)
            room = max(10 ** (0.04 * (math.log10(high) - math.log10(low))), 1.02)
            low, high = low / room, high * room
        else:
            room = 0.04 * (high - low) or abs(high) * 0.04 or 0.5
            low, high = low - room, high + room
    return Scale(low, high, start, end, log)
