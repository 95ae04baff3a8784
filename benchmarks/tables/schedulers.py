"""Schedulers on recorded learning curves: how good is the trial that they choose with a share of full training?

    python -m benchmarks.tables.schedulers [--seeds 20] [--share 0.15] [--json]

Trials are drawn in random order from the table, one worker. A scheduler may spend `--share` of what it would cost to
train the whole table to the end. It chooses the best of the trials that it trained longest. The regret is the final
loss of that trial minus the best final loss of the table, in nats: 0 is the best possible. A run that diverged fails.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.quality.table import Missing, found
from benchmarks.support.report import report
from benchmarks.tables.table import load
from nas.schedulers.contract import Promotion, Scheduler
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    lines = []
    for source in (own, nlp):
        try:
            table = source()
            lines += rows(table, options.seeds, options.share)
        except Missing as error:
            print(f"Skipped: {error}")
    title = f"with {options.share:.0%} of full training"
    report(f"schedulers on recorded curves {title}", lines, as_json=options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
