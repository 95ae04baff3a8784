"""The experiment of the Evolved Transformer on our own table: seeded or not, hurdles or fixed lengths, equal compute.

    python -m benchmarks.tables.evolved [--seeds 5] [--compute 40] [--real] [--kept build/evolved.jsonl] [--json]

So et al. 2019 (https://arxiv.org/abs/1901.11117, table 1) compare searches by tournament selection: seeded with the
Transformer or random, with progressive dynamic hurdles or a fixed number of steps for each model. Here every search may
train as many steps as `--compute` full trainings of 240 steps. The seed is the Transformer of the quickstart, as close
as its space allows (two heads of keys and values, RMS norm before the feed-forward layers). A random forest that is
fitted to the curves of the table replaces training: it predicts the bits per byte of any architecture of the space
after 15, 30, 80 and 240 steps (`benchmarks.tables.schedulers --forest` prints its error). The result of a search is the
model with the best fitness, the value after its longest training. Its score is the value after 240 steps: mean and
standard deviation over the seeds, as in the paper, and the half-width of the 95 % interval.

`--real` trains each model instead of using the forest, with the task and recipe of the quickstart; full training has 60
steps. The chosen model is trained again with another seed and scored on more text, so that a lucky seed does not count.
Results are stored in `--kept`, and the same command continues an interrupted experiment.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Protocol

import numpy as np

from benchmarks.quality.__main__ import point as interval
from benchmarks.support.report import report
from benchmarks.tables.table import Table, load
from benchmarks.tables.trained import Trained
from nas.schedulers.contract import Promotion
from nas.schedulers.registry import make as make_scheduler
from nas.strategies.contract import Result, Started
from nas.strategies.registry import make as make_strategy
from searchspace.space.point import Point
from searchspace.space.space import Space

TREES = 100


class Source(Protocol):
    """Where the bits per byte of a model come from."""

    @property
    def space(self) -> Space: ...

    def value(self, point: Point, steps: int) -> float | None:
        """After `steps` steps in a search; None if the training diverged."""

    def score(self, point: Point) -> float | None:
        """Of the model that a search chose, after full training."""


@dataclass(frozen=True)
class Experiment:
    """rungs: the last is full training. trainings: scheduler and options by title. strategy: options of `tournament`.
    compute: of each search, in full trainings."""

    rungs: tuple[int, ...]
    trainings: Mapping[str, tuple[str, dict[str, Any]]]
    strategy: Mapping[str, Any]
    compute: float


FORECAST = Experiment(
    rungs=(15, 30, 80, 240),
    trainings={
        "hurdles": ("hurdles", {"rungs": (15, 30, 80, 240), "wait": 40}),
        "fixed, 30 steps": ("full", {"steps": 30}),
        "fixed, 80 steps": ("full", {"steps": 80}),
        "fixed, 240 steps": ("full", {"steps": 240}),
    },
    strategy={"population": 50, "sample": 15, "start": 30},
    compute=40,
)
REAL = Experiment(
    rungs=(15, 30, 60),
    trainings={"fixed, 60 steps": ("full", {"steps": 60}), "hurdles": ("hurdles", {"rungs": (15, 30, 60), "wait": 12})},
    strategy={"population": 20, "sample": 6, "start": 8},
    compute=20,
)


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

        places = [list(self.table.steps).index(steps) for steps in FORECAST.rungs]
        inputs = np.array([self.space.encode(point) for point in self.table.points])
        outputs = np.array([[row.bits_per_byte[0][place] for place in places] for row in self.table.rows])
        return RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0).fit(inputs, outputs)

    def value(self, point: Point, steps: int) -> float:
        return float(self._curve(point)[FORECAST.rungs.index(steps)])

    def score(self, point: Point) -> float:
        return float(self._curve(point)[-1])

    def _curve(self, point: Point) -> np.ndarray:
        """Bits per byte after each of `FORECAST.rungs`."""
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


def searched(source: Source, experiment: Experiment, seeded: bool, training: str, seed: int) -> tuple[Point, int]:
    """(the chosen model, models that were tried) of one search."""
    name, options = experiment.trainings[training]
    scheduler = make_scheduler(name, {"bits_per_byte": "minimize"}, **options)
    strategy = make_strategy("tournament", source.space, seed, 1, None, None, **experiment.strategy, seeded=seeded)
    left, points, fitness, rungs, trained = experiment.compute * experiment.rungs[-1], [], [], [], []
    while left > 0:
        promotion = scheduler.promotion()
        if isinstance(promotion, Promotion):
            number, steps = promotion.number, promotion.steps
            rungs[number] = promotion.rung
        else:
            number, steps = len(points), scheduler.start(len(points))
            points.append(transformer(source.space) if seeded and not number else strategy.ask(number)[0].point)
            fitness.append(math.inf)
            rungs.append(0)
            trained.append(0)
            strategy.start(Started(number, points[-1]))
        left -= steps - trained[number]
        trained[number] = steps
        value = source.value(points[number], steps)
        fitness[number] = math.inf if value is None else value
        values = None if value is None else (value,)
        scheduler.started(number, rungs[number], steps)
        scheduler.tell(number, rungs[number], values, steps)
        strategy.tell(Result(number, rungs[number], steps, points[number], values))
    return points[int(np.argmin(fitness))], len(points)


def rows(source: Source, experiment: Experiment, seeds: int) -> list[dict[str, Any]]:
    """One row for each way to search, as in table 1 of the paper. Raises ValueError if a chosen model diverged."""
    lines: list[dict[str, Any]] = []
    for seeded in (True, False):
        for training in experiment.trainings:
            found = [searched(source, experiment, seeded, training, seed) for seed in range(seeds)]
            scores = [_score(source, point) for point, _ in found]
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
    alone = _score(source, transformer(source.space))
    first = {"seed model": "the Transformer itself", "training": "none", "bits per byte": f"{alone:.4f}"}
    return [{**dict.fromkeys(lines[0], ""), **first}, *lines]


def _score(source: Source, point: Point) -> float:
    score = source.score(point)
    if score is None:
        raise ValueError(f"The full training of the chosen model diverged: {dict(point.choices)}.")
    return score


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--compute", type=float, help="of each search, in full trainings; default: 40, --real: 20")
    parser.add_argument("--real", action="store_true", help="train every model")
    parser.add_argument("--kept", type=Path, default=Path("build/evolved.jsonl"), help="a file for the results")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    experiment = REAL if options.real else FORECAST
    experiment = replace(experiment, compute=options.compute or experiment.compute)
    source = Trained(options.kept, REAL.rungs) if options.real else Forest(load())
    kind = "real training" if options.real else "a forest on our own table"
    title = f"seeds and hurdles, {kind}, {experiment.compute:g} full trainings each, {options.seeds} seeds"
    report(title, rows(source, experiment, options.seeds), as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
