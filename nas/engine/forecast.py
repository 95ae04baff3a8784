"""Forecasts how much a search will do: units by rung and in the finals, and workers. Plans and ETAs use it."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass

from nas.config.schema import SearchConfig
from nas.schedulers import registry
from nas.schedulers.contract import Level


@dataclass(frozen=True)
class Forecast:
    """The forecast of a whole search. `units[r]` units train `steps[r]` steps each, up to `rungs[r]` steps in all."""

    rungs: tuple[int, ...]  # fewest steps first
    units: tuple[int, ...]
    steps: tuple[int, ...]
    final_units: int
    final_steps: int
    workers: int | None  # None: the resources of the cluster decide

    @property
    def total_steps(self) -> int:
        """Training steps of all units."""
        return sum(count * steps for count, steps in zip(self.units, self.steps)) + self.final_units * self.final_steps


def forecast(config: SearchConfig) -> Forecast:
    """The forecast from the numbers in a search file. How many trials continue to later rungs is approximate."""
    levels = _levels(config)
    finals = config.finals
    return Forecast(
        rungs=tuple(level.steps for level in levels),
        units=tuple(level.units for level in levels),
        steps=tuple(level.steps - level.start for level in levels),
        final_units=(min(finals.top, config.budget.trials) + 1) * finals.seeds if finals.top else 0,
        final_steps=finals.steps,
        workers=_workers(config),
    )


def _levels(config: SearchConfig) -> list[Level]:
    """The levels of all arms together, fewest steps first."""
    shares = [arm.share for arm in config.arms.values()]
    trials = [round(share * config.budget.trials) for share in shares]
    units: Counter[tuple[int, int]] = Counter()
    for count in (config.budget.trials - sum(trials), *trials):
        if count:
            scheduler = registry.make(config.scheduler.name, **config.scheduler.options)
            units.update({(level.steps, level.start): level.units for level in scheduler.forecast(count)})
    return [Level(count, start, steps) for (steps, start), count in sorted(units.items())]


def _workers(config: SearchConfig) -> int | None:
    options = config.runner.options
    if config.runner.name == "inline":
        return 1
    if options.get("workers"):
        return int(options["workers"])
    if options.get("address"):
        return None
    return max(1, math.floor((os.cpu_count() or 1) / float(options.get("cpus", 1))))
