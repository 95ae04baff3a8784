"""Schedulers on recorded learning curves: how good is the trial that they choose with a share of full training?

    python -m benchmarks.tables.schedulers [--seeds 20] [--share 0.15] [--calibration] [--json]

Trials are drawn in random order from the table, one worker. A scheduler may spend `--share` of what it would cost to
train the whole table to the end. It chooses the best of the trials that it trained longest. The regret is the final
loss of that trial minus the best final loss of the table, in nats: 0 is the best possible. A run that diverged fails.
`--calibration` prints how often the trials that `extrapolation` stopped would have reached the best trial at that time,
and the mean probability that it gave for this; the interval is Wilson's, over the trials of all seeds.
`--forecast` compares the cost that `extrapolation` expects with its cost, for some numbers of trials.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.quality.table import Missing, found
from benchmarks.support.report import report
from benchmarks.tables.table import load
from nas.schedulers.contract import Promotion, Scheduler
from nas.schedulers.extrapolation import Extrapolation
from nas.schedulers.registry import make

GOOD = 0.01  # nats


@dataclass(frozen=True)
class Curves:
    """Losses in nats by trial and length of training; NaN where a run had diverged. rungs: for schedulers."""

    name: str
    lengths: tuple[int, ...]
    losses: np.ndarray
    rungs: tuple[int, ...]

    @property
    def best(self) -> float:
        return float(np.nanmin(self.losses[:, -1]))


def own() -> Curves:
    """Bits per byte of our own table, in nats a byte, with the first seed."""
    table = load()
    losses = np.array([row.bits_per_byte[0] for row in table.rows]) * math.log(2)
    return Curves("own", tuple(table.steps), losses, (15, 30, 80, 240))


def nlp() -> Curves:
    """Validation loss of NAS-Bench-NLP on WikiText-2, nats a token, the lowest so far. Raises Missing."""
    with gzip.open(found("nas-bench-nlp-wt2", "curves.jsonl.gz"), "rt") as file:
        runs = [json.loads(line) for line in file]
    losses = np.full((len(runs), 50), np.nan)
    for place, run in enumerate(runs):
        known = np.minimum.accumulate(np.array(run["val_losses"][:50], dtype=float))
        losses[place, : len(known)] = known
        if run["status"] == "OK" and len(known):
            losses[place, len(known) :] = known[-1]
    return Curves("nas-bench-nlp-wt2", tuple(range(1, 51)), losses, (1, 2, 6, 17, 50))


def schedulers(curves: Curves) -> dict[str, Any]:
    """The schedulers that are compared: {title: (name, options)}."""
    rungs = list(curves.rungs)
    return {
        "full": ("full", {"steps": rungs[-1]}),
        "halving": ("halving", {"rungs": rungs}),
        "hyperband": ("hyperband", {"rungs": rungs, "brackets": 2}),
        "pasha": ("pasha", {"rungs": rungs}),
        "extrapolation": ("extrapolation", {"rungs": rungs, "full": max(10, len(curves.losses) // 50)}),
        "hurdles": ("hurdles", {"rungs": rungs, "wait": max(5, len(curves.losses) // 20)}),
    }


def chosen(curves: Curves, name: str, options: dict[str, Any], share: float, seed: int) -> tuple[int, float]:
    """(the trial that a scheduler chooses, the share of full training that it spent)."""
    return replayed(curves, make(name, {"loss": "minimize"}, **options), share, seed)


def replayed(curves: Curves, scheduler: Scheduler, share: float, seed: int) -> tuple[int, float]:
    """As `chosen`, with a new scheduler."""
    order = random.Random(seed).sample(range(len(curves.losses)), len(curves.losses))
    budget, spent, trials = share * len(order) * curves.lengths[-1], 0, 0
    reached: dict[int, tuple[int, float]] = {}  # trial -> its steps and loss
    rung: dict[int, int] = {}
    steps_of: dict[int, int] = {}
    while spent < budget:
        promotion = scheduler.promotion()
        if isinstance(promotion, Promotion):
            number, rung[promotion.number], steps = promotion.number, promotion.rung, promotion.steps
        elif trials < len(order):
            number, steps, trials = trials, scheduler.start(trials), trials + 1
            rung[number] = 0
        else:
            break
        spent += steps - steps_of.get(number, 0)
        steps_of[number] = steps
        loss = float(curves.losses[order[number], curves.lengths.index(steps)])
        scheduler.started(number, rung[number], steps)
        scheduler.tell(number, rung[number], None if math.isnan(loss) else (loss,), steps)
        if not math.isnan(loss):
            reached[number] = steps, loss
    best = min(reached, key=lambda each: (-reached[each][0], reached[each][1]))
    return order[best], spent / len(order) / curves.lengths[-1]


def rows(curves: Curves, seeds: int, share: float) -> list[dict[str, Any]]:
    """One row for each scheduler."""
    lines = []
    for title, (name, options) in schedulers(curves).items():
        runs = [chosen(curves, name, options, share, seed) for seed in range(seeds)]
        final = [float(curves.losses[trial, -1]) for trial, _ in runs]
        regrets = [(loss if not math.isnan(loss) else math.inf) - curves.best for loss in final]
        lines.append(
            {
                "table": curves.name,
                "scheduler": title,
                "regret, mean": f"{fmean(regrets):.4f}",
                "largest": f"{max(regrets):.4f}",
                f"within {GOOD} nats": f"{sum(each <= GOOD for each in regrets)} of {seeds}",
                "of full training": f"{fmean(spent for _, spent in runs):.1%}",
            }
        )
    return lines


def calibration(
    curves: Curves, seeds: int, probabilities: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2), **changed: Any
) -> list[dict[str, Any]]:
    """One row for each threshold of `extrapolation`. The budget is enough for all trials: each is stopped or trained.

    changed: options of the scheduler that differ from those of the other benchmarks.
    """
    options = schedulers(curves)["extrapolation"][1] | changed
    lines = []
    for probability in probabilities:
        stopped: list[tuple[float, bool]] = []
        for seed in range(seeds):
            made = make("extrapolation", {"loss": "minimize"}, **options, probability=probability)
            assert isinstance(made, Extrapolation)
            replayed(curves, made, 1.0, seed)
            order = random.Random(seed).sample(range(len(curves.losses)), len(curves.losses))
            for number, (_, chance, limit) in made.stopped.items():
                stopped.append((chance, bool(curves.losses[order[number], -1] <= limit)))
        reached = sum(each for _, each in stopped)
        low, high = wilson(reached, len(stopped))
        lines.append(
            {
                "table": curves.name,
                "stopped below": probability,
                "stopped": f"{len(stopped) / seeds:.0f} of {len(curves.losses)}",
                "would have reached the best": f"{reached} of {len(stopped)}: {reached / max(1, len(stopped)):.2%}",
                "95 % interval": f"{low:.2%} to {high:.2%}",
                "mean probability given": f"{fmean(chance for chance, _ in stopped):.2%}" if stopped else "",
            }
        )
    return lines


def forecasts(curves: Curves, seeds: int, numbers: Sequence[int] = (16, 27, 81, 200, 600)) -> list[dict[str, Any]]:
    """One row for each number of trials and probability: the training that `extrapolation` expects and needs.

    Both are shares of the cost of training all trials to the end.
    """
    lines = []
    starts = (0, *curves.rungs)
    for trials in (each for each in numbers if each <= len(curves.losses)):
        for probability in (0.01, 0.05, 0.2):
            options = {"rungs": list(curves.rungs), "probability": probability}
            spent = []
            for seed in range(seeds):
                places = random.Random(seed).sample(range(len(curves.losses)), trials)
                some = replace(curves, losses=curves.losses[places])
                spent.append(chosen(some, "extrapolation", options, 1.0, seed)[1])
            levels = make("extrapolation", {"loss": "minimize"}, **options).forecast(trials)
            steps = sum(each.units * (each.steps - start) for each, start in zip(levels, starts))
            expected = steps / trials / curves.rungs[-1]
            lines.append(
                {
                    "table": curves.name,
                    "trials": trials,
                    "probability": probability,
                    "forecast": f"{expected:.3f}",
                    "needed": f"{fmean(spent):.3f}",
                    "ratio": f"{expected / fmean(spent):.2f}",
                }
            )
    return lines


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    share, spread = hits / count, z**2 / count
    middle, half = share + spread / 2, z * math.sqrt(share * (1 - share) / count + spread / count / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.15)
    parser.add_argument("--forecast", action="store_true", help="the cost of `extrapolation` and its forecast instead")
    parser.add_argument("--calibration", action="store_true", help="the calibration of `extrapolation` instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    lines = []
    for source in (own, nlp):
        try:
            table = source()
            if options.forecast:
                lines += forecasts(table, options.seeds)
            elif options.calibration:
                lines += calibration(table, options.seeds)
            else:
                lines += rows(table, options.seeds, options.share)
        except Missing as error:
            print(f"Skipped: {error}")
    title = f"with {options.share:.0%} of full training"
    if options.forecast or options.calibration:
        title = "and the forecast of their cost" if options.forecast else "of the trials that were stopped"
    report(f"schedulers on recorded curves {title}", lines, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
