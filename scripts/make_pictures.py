"""Draw the pictures of README.md from a study: `python scripts/make_pictures.py [STUDY] [--storage URL]`.

Writes docs/pictures/architecture.svg, the best architecture, and docs/pictures/front.svg, the Pareto front of the first
two objectives over the trials that were trained longest. Trials that were trained for fewer steps are pale.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nas
from dashboards.figures.marks import Scale
from nas.architectures import of_trial
from searchspace.cost import Shape
from searchspace.model.picture import svg

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, HEIGHT, MARGIN, TOP = 640, 420, 60, 40  # the legend is above the axes
NAMES = {"flops": "FLOPs of one sequence", "bits_per_byte": "bits per byte (validation)"}
STYLE = "font: 13px system-ui, sans-serif; fill: #333"


@dataclass(frozen=True)
class Dot:
    """One trial: x is the second objective, y the first; both are minimised."""

    x: float
    y: float
    front: bool
    baseline: bool
    shorter: bool  # trained for fewer steps than the longest


def short(value: float) -> str:
    """20000000 -> 20M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def plot(dots: Sequence[Dot], x_name: str, y_name: str) -> str:
    """The dots as SVG: trials as circles, baselines as squares, the front joined by a line."""
    xs, ys = [dot.x for dot in dots], [dot.y for dot in dots]
    x = Scale(min(xs) / 1.2, max(xs) * 1.2, MARGIN, WIDTH - 20, log=True)
    pad = 0.06 * (max(ys) - min(ys) or 1)
    y = Scale(min(ys) - pad, max(ys) + pad, HEIGHT - MARGIN, TOP)
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in x.ticks():
        parts.append(f'<path d="M{x(tick):.1f} {TOP}V{HEIGHT - MARGIN}" stroke="#e5e5e5"/>')
        place = f'x="{x(tick):.1f}" y="{HEIGHT - MARGIN + 20}" text-anchor="middle"'
        parts.append(f'<text {place} style="{STYLE}">{short(tick)}</text>')
    for tick in y.ticks():
        parts.append(f'<path d="M{MARGIN} {y(tick):.1f}H{WIDTH - 20}" stroke="#e5e5e5"/>')
        parts.append(f'<text x="{MARGIN - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" style="{STYLE}">{tick:g}</text>')
    front = sorted((dot for dot in dots if dot.front), key=lambda dot: dot.x)
    stairs = "".join(f"H{x(dot.x):.1f}V{y(dot.y):.1f}" for dot in front[1:])
    start = f"M{x(front[0].x):.1f} {y(front[0].y):.1f}"
    parts.append(f'<path d="{start}{stairs}" fill="none" stroke="#0072b2" stroke-width="2"/>')
    for dot in dots:
        fill = "#0072b2" if dot.front else "#555"
        pale = ' fill-opacity="0.3"' if dot.shorter else ""
        if dot.baseline:
            parts.append(
                f'<rect x="{x(dot.x) - 5:.1f}" y="{y(dot.y) - 5:.1f}" width="10" height="10" fill="#d55e00"{pale}/>'
            )
        else:
            parts.append(f'<circle cx="{x(dot.x):.1f}" cy="{y(dot.y):.1f}" r="5" fill="{fill}"{pale}/>')
    middle = (HEIGHT - MARGIN + TOP) / 2
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle" style="{STYLE}">{x_name}</text>')
    parts.append(
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle" style="{STYLE}">{y_name}</text>'
    )
    legend = [("circle", "#0072b2", "Pareto front"), ("circle", "#555", "other trials")]
    legend += [("rect", "#d55e00", "baselines")] if any(dot.baseline for dot in dots) else []
    for place, (shape, colour, text) in enumerate(legend):
        at = MARGIN + 6 + 125 * place
        mark = (
            f'<circle cx="{at}" cy="18" r="5" fill="{colour}"/>'
            if shape == "circle"
            else f'<rect x="{at - 5}" y="13" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(mark + f'<text x="{at + 12}" y="22" style="{STYLE}">{text}</text>')
    if any(dot.shorter for dot in dots):
        parts.append(f'<text x="{WIDTH - 20}" y="22" text-anchor="end" style="{STYLE}">pale: fewer steps</text>')
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n{body}\n</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("study", nargs="?", default="quickstart")
    parser.add_argument("--storage", default=None, help="the study database; default: runs/STUDY.db")
    arguments = parser.parse_args()
    storage = arguments.storage or f"runs/{arguments.study}.db"
    with nas.open_study(storage, arguments.study) as study:
        first, second = (each["name"] for each in study.record.objectives[:2])
        front = {trial.number for trial in study.pareto()}
        trials = study.best(limit=10_000)
        baselines = {t.number for t in study.store.trials(study.record.id) if t.operator == "baseline"}
        best = study.best()[0].number
    longest = max(t.steps or 0 for t in trials)
    dots = [
        Dot(t.values[second], t.values[first], t.number in front, t.number in baselines, (t.steps or 0) < longest)
        for t in trials
    ]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "front.svg").write_text(plot(dots, NAMES.get(second, second), NAMES.get(first, first)), encoding="utf-8")
    picture = svg(of_trial(arguments.study, best, storage), Shape(length=128), title=f"trial {best}")
    (FOLDER / "architecture.svg").write_text(picture, encoding="utf-8")
    print(f"Wrote {FOLDER.name}/front.svg with {len(dots)} trials and {FOLDER.name}/architecture.svg of trial {best}.")


if __name__ == "__main__":
    main()
