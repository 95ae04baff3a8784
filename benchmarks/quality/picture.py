"""The curves of `docs/strategies.md`: the score of each strategy by the number of evaluations, as an SVG picture.

    python -m benchmarks.quality.picture build/quality.jsonl [MORE.jsonl ...] --out docs/pictures/strategies.svg

Reads the runs that `benchmarks.quality` has stored; one panel for each table. A point is the mean over the seeds, its
bar the 95 % interval. The horizontal axis is logarithmic.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

from benchmarks.quality.__main__ import point

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 190, 46, 34, 26
COLOURS = {"model": "#c0392b", "nsga2": "#2471a3", "aging_evolution": "#7d3c98", "random": "#7f8c8d"}
FONT = 'font-family="sans-serif" font-size="11"'
Curve = list[tuple[int, float, float]]  # (evaluations, mean, half-width)


def curves(files: list[Path], code: str) -> dict[str, dict[str, Curve]]:
    """By table and strategy, from the runs of one state of the code."""
    found: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for line in (line for file in files for line in file.read_text().splitlines()):
        run = json.loads(line)
        if run["code"] == code and run["arm"] in COLOURS:
            for budget, score in run["scores"].items():
                found[run["table"]][run["arm"]][int(budget)].append(score)
    return {
        table: {arm: [point(budget, scores) for budget, scores in sorted(by.items())] for arm, by in arms.items()}
        for table, arms in sorted(found.items())
        if len(arms) > 1
    }


def picture(tables: dict[str, dict[str, Curve]]) -> str:
    """The SVG, two panels in a row."""
    rows = math.ceil(len(tables) / 2)
    width, height = 2 * (WIDTH + LEFT + GAP), rows * (HEIGHT + TOP + GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, (table, arms) in enumerate(tables.items()):
        x, y = (place % 2) * (WIDTH + LEFT + GAP) + LEFT, (place // 2) * (HEIGHT + TOP + GAP) + TOP
        parts.append(f'<g transform="translate({x},{y})">{panel(table, arms, COLOURS)}</g>')
    for place, (arm, colour) in enumerate(COLOURS.items()):
        parts.append(f'<text x="{LEFT + place * 130}" y="{height - 8}" fill="{colour}">&#9632; {arm}</text>')
    return "\n".join([*parts, "</svg>\n"])


def panel(table: str, arms: dict[str, Curve], colours: dict[str, str]) -> str:
    """The curves of one table, as the content of an SVG group."""
    points = [point for curve in arms.values() for point in curve]
    low = math.floor(20 * min(mean - half for _, mean, half in points)) / 20
    budgets = sorted({budget for budget, _, _ in points})
    first, last = math.log(budgets[0]), math.log(budgets[-1])

    def place(budget: int, score: float) -> tuple[float, float]:
        across = (math.log(budget) - first) / ((last - first) or 1.0)
        return across * WIDTH, HEIGHT * (1 - (max(score, low) - low) / (1 - low))

    parts = [
        f'<text y="-10" font-weight="bold">{table}</text>',
        f'<path d="M0 0V{HEIGHT}H{WIDTH}" fill="none" stroke="#444"/>',
    ]
    parts += [
        f'<text x="{place(each, 1)[0]:.0f}" y="{HEIGHT + 14}" text-anchor="middle">{each}</text>' for each in budgets
    ]
    for score in (low, (low + 1) / 2, 1.0):
        parts.append(f'<text x="-6" y="{place(1, score)[1] + 4:.0f}" text-anchor="end">{score:.3g}</text>')
    for arm, curve in arms.items():
        colour = colours[arm]
        line = " ".join("{:.1f},{:.1f}".format(*place(budget, mean)) for budget, mean, _ in curve)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for budget, mean, half in curve:
            (x, top), (_, bottom) = place(budget, min(1.0, mean + half)), place(budget, mean - half)
            parts.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}"/>')
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--code", default="final", help="the state of the code whose runs are drawn")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.write_text(picture(curves(arguments.files, arguments.code)))


if __name__ == "__main__":
    main()
