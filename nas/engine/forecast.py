"""Forecasts how much a search will do: units by rung and in the finals, and workers. Plans and ETAs use it."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from nas.config.schema import TRAINING, SearchConfig
from nas.finals.plan import expected_runs
from nas.schedulers import registry
from nas.schedulers.contract import Level
from nas.work import SHARE

MOST_TRIALS = 10**7  # a forecast looks no further


@dataclass(frozen=True)
class Forecast:
    """The forecast of a whole search. `units[r]` units train `steps[r]` steps each, up to `rungs[r]` steps in all."""

    rungs: tuple[int, ...]  # fewest steps first
    units: tuple[int, ...]
    steps: tuple[int, ...]
    finals: tuple[Level, ...]  # the units of the finals, shortest first; each trains from scratch
    workers: int | None  # None: the resources of the cluster decide

    @property
    def starts(self) -> tuple[int, ...]:
        """The steps from which the units of each level continue; 0 for new trials."""
        return tuple(rung - steps for rung, steps in zip(self.rungs, self.steps))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        longest = self.finals[-1].steps if self.finals else 0
        return {**asdict(self), "final_units": self.final_units, "final_steps": longest}

    @property
    def final_units(self) -> int:
        """Units of the finals."""
        return sum(each.units for each in self.finals)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What training costs: of one step, and seconds of a unit besides its steps. None: not known."""

    steps: int = 1
    tokens: int | None = None
    flops: float | None = None
    device_seconds: float | None = None
    unit_seconds: float = 0.0


def affordable(config: SearchConfig, rates: Rates) -> tuple[int, str] | None:
    """(trials, limit): how many trials the budget pays for, and its limit that is spent first.

    None if the budget does not limit trials and the rates of its limits are not known.
    """
    limits = {name: getattr(config.budget, name) for name in TRAINING}
    known = {name: limit for name, limit in limits.items() if limit is not None and getattr(rates, name) is not None}
    found = [(_most(config, rates, name, limit), name) for name, limit in known.items()]
    if config.budget.trials is not None:
        found.append((config.budget.trials, "trials"))
    return min(found, default=None, key=lambda each: each[0])


def _most(config: SearchConfig, rates: Rates, name: str, limit: float) -> int:
    """The largest number of trials that cost at most `limit`; at least one."""
    low, high = 1, 2
    while high < MOST_TRIALS and _price(config, rates, name, high) <= limit:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _price(config, rates, name, middle) <= limit else (low, middle)
    return low


def _price(config: SearchConfig, rates: Rates, name: str, trials: int) -> float:
    levels = _levels(config, trials)
    trained = sum(level.units * (level.steps - level.start) for level in levels) * getattr(rates, name)
    if name != "device_seconds":
        return trained
    return (1 + SHARE) * trained + sum(level.units for level in levels) * rates.unit_seconds


def forecast(config: SearchConfig, trials: int | None = None) -> Forecast:
    """The forecast from the numbers in a search file. How many trials continue to later rungs is approximate.

    trials: how many there will be, if the budget does not say it.
    """
    trials = trials or config.budget.trials or 1
    levels = _levels(config, trials)
    return Forecast(
        rungs=tuple(level.steps for level in levels),
        units=tuple(level.units for level in levels),
        steps=tuple(level.steps - level.start for level in levels),
        finals=tuple(Level(units, 0, steps) for steps, units in expected_runs(config, trials).items()),
        workers=_workers(config),
    )


def _levels(config: SearchConfig, trials: int) -> list[Level]:
    """The levels of all arms together, fewest steps first."""
    controls: list[int] = []
    for arm in config.arms.values():  # of few trials the rounded shares may be more than all
        controls.append(min(round(arm.share * trials), trials - sum(controls)))
    units: Counter[tuple[int, int]] = Counter()
    for count in (trials - sum(controls), *controls):
        if count:
            made = registry.make(config.scheduler.name, **config.scheduler.options)
            for level in made.forecast(count):
                units[level.steps, level.start] += round(level.units)
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
