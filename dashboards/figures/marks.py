"""What all SVG pictures share: margins, colours, styles, symbols, and the format of names and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nas.report.tables import short

RIGHT, TOP = 16, 14
LETTER = 7.2  # pixels: the width of a letter in a label
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#b8860b", "#4aa3df", "#555f6b", "#882255")
SCALE = ("#fde725", "#addc30", "#5ec962", "#28ae80", "#21918c", "#2c728e", "#3b528b", "#472d7b")
STYLE = (  # of a picture in a separate file; the same as in static/style.css
    "svg.figure{font:12px system-ui,sans-serif;background:#fff;color:#1c2128}"
    ".figure text{fill:#3d4653}.figure .grid{stroke:#e3e6ea}.figure .axis{stroke:#98a2b3}"
    ".figure .line{fill:none;stroke-width:2}.figure .band{stroke:none;fill-opacity:.15}"
    ".quiet{color:#98a2b3}.figure .mark{fill:currentColor;stroke:currentColor}"
    ".figure .line,.figure .whisker{stroke:currentColor}.figure .band{fill:currentColor}"
    ".figure .on-light{fill:#111}.figure .on-dark{fill:#fff}"
    + "".join(f".c{place}{{color:{colour}}}" for place, colour in enumerate(COLOURS))
    + "".join(f".s{place}{{color:{colour}}}" for place, colour in enumerate(SCALE))
)


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
        return []
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
