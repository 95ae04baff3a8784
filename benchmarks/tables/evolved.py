"""The experiment of the Evolved Transformer on our own table: seeded or not, hurdles or fixed lengths, equal compute.

    python -m benchmarks.tables.evolved [--seeds 5] [--compute 60] [--json]

So et al. 2019 (https://arxiv.org/abs/1901.11117, table 1) compare searches by tournament selection: seeded with the
Transformer or random, with progressive dynamic hurdles or a fixed number of steps for each model. Here every search may
train as many steps as `--compute` full trainings of 240 steps. The seed is the Transformer of the quickstart, as far as
its space has it (two heads of keys and values, RMS norm before the feed-forward layers). A random forest fitted to the
curves of the table stands in for training: it predicts the bits per byte of any architecture of the space after 15, 30,
80 and 240 steps (`benchmarks.tables.schedulers --forest` says its error). The result of a search is the model with the
best fitness, the value after its longest training. Its score is the value after 240 steps: mean and standard deviation
over the seeds, as in the paper, and the half-width of the 95 % interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.quality.__main__ import point as interval
from benchmarks.support.report import report
from benchmarks.tables.table import Table, load
from nas.schedulers.contract import Promotion
from nas.schedulers.registry import make as make_scheduler
from nas.strategies.contract import Result, Started
from nas.strategies.registry import make as make_strategy
from searchspace.space.point import Point
from searchspace.space.space import Space

RUNGS = (15, 30, 80, 240)
TREES = 100
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "hurdles": ("hurdles", {"rungs": RUNGS, "wait": 40}),
    "fixed, 30 steps": ("full", {"steps": 30}),
    "fixed, 80 steps": ("full", {"steps": 80}),
    "fixed, 240 steps": ("full", {"steps": 240}),
}
STRATEGY = {"population": 50, "sample": 15, "start": 30}


@dataclass(frozen=True)
class Forest:
    """A random forest that predicts the curves of architectures."""

    table: Table

    @property
    def space(self) -> Space:
        return self.table.space

    @cached_property
    def _model(self) -> Any:
        from sklearn.ensemble import RandomForestRegressor

        places = [list(self.table.steps).index(steps) for steps in RUNGS]
        inputs = np.array([self.space.encode(point) for point in self.table.points])
        outputs = np.array([[row.bits_per_byte[0][place] for place in places] for row in self.table.rows])
        return RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0).fit(inputs, outputs)

    def curve(self, point: Point) -> np.ndarray:
        """Bits per byte after each of `RUNGS`."""
        inputs = self.space.encode(point)[None].astype(np.float32)
        return np.mean([tree.tree_.predict(inputs)[0, :, 0] for tree in self._model.estimators_], axis=0)


TRANSFORMER = {
    "width": 80,
    "position": "rotary",
    "body[0]": "repeat",
    "times": 3,
    "norm": "layer_norm",
    "residual.of[0]": "attention",
    "key_value_heads": 2,
    ".heads": 4,
    "expand": 4,
    "activation": "gelu",
}


def transformer(space: Space) -> Point:
    """The Transformer as a point of the space: the value of each hole by the end of its path."""

    def chosen(path: str, hole: Any) -> Any:
        if path.endswith("of[1].residual.of[0]"):
            return "feed_forward"
        return next(value for end, value in TRANSFORMER.items() if path.split("?")[-1].endswith(end))

    return space.realise(chosen)


def searched(forest: Forest, seeded: bool, training: str, compute: float, seed: int) -> tuple[float, int]:
    """(bits per byte of the chosen model after full training, models that were tried) of one search."""
    name, options = TRAININGS[training]
    scheduler = make_scheduler(name, {"bits_per_byte": "minimize"}, **options)
    strategy = make_strategy("tournament", forest.space, seed, 1, None, None, **STRATEGY, seeded=seeded)
    left, points, curves, rungs, trained = compute * RUNGS[-1], [], [], [], []
    while left > 0:
        promotion = scheduler.promotion()
        if isinstance(promotion, Promotion):
            number, steps = promotion.number, promotion.steps
            rungs[number] = promotion.rung
        else:
            number, steps = len(points), scheduler.start(len(points))
            points.append(transformer(forest.space) if seeded and not number else strategy.ask(number)[0].point)
            curves.append(forest.curve(points[-1]))
            rungs.append(0)
            trained.append(0)
            strategy.start(Started(number, points[-1]))
        left -= steps - trained[number]
        trained[number] = steps
        value = (float(curves[number][RUNGS.index(steps)]),)
        scheduler.started(number, rungs[number], steps)
        scheduler.tell(number, rungs[number], value, steps)
        strategy.tell(Result(number, rungs[number], steps, points[number], value))
    fitness = [curve[RUNGS.index(steps)] for curve, steps in zip(curves, trained, strict=True)]
    return float(curves[int(np.argmin(fitness))][-1]), len(points)


def rows(seeds: int, compute: float) -> list[dict[str, Any]]:
    """One row for each way to search, as in table 1 of the paper."""
    forest = Forest(load())
    lines: list[dict[str, Any]] = []
    for seeded in (True, False):
        for training in TRAININGS:
            found = [searched(forest, seeded, training, compute, seed) for seed in range(seeds)]
            scores = [score for score, _ in found]
            _, mean, half = interval(0, scores)
            lines.append(
                {
                    "seed model": "Transformer" if seeded else "random",
                    "training": training,
                    "bits per byte": f"{mean:.4f}",
                    "standard deviation": f"{stdev(scores):.4f}" if seeds > 1 else "",
                    "95 % interval": f"± {half:.4f}",
                    "models": f"{fmean(models for _, models in found):.0f}",
                }
            )
    alone = float(forest.curve(transformer(forest.space))[-1])
    first = {"seed model": "the Transformer itself", "training": "none", "bits per byte": f"{alone:.4f}"}
    return [{**dict.fromkeys(lines[0], ""), **first}, *lines]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--compute", type=float, default=40, help="of each search, in full trainings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    title = f"seeds and hurdles, {options.compute:g} full trainings each, {options.seeds} seeds"
    report(title, rows(options.seeds, options.compute), as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
