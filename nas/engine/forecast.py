"""How much a search will do: units by rung and in the finals, and workers; for plans and for the time that is left."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from nas.config.schema import SearchConfig
from nas.schedulers import registry


@dataclass(frozen=True)
class Forecast:
    """Of a whole search. `units[r]` trials reach rung r and train `steps[r]` steps there, beyond the rung below."""

    rungs: tuple[int, ...]  # steps in all at each rung
    units: tuple[int, ...]
    steps: tuple[int, ...]
    final_units: int
    final_steps: int
    workers: int | None  # None: the cluster's resources decide

    @property
    def total_steps(self) -> int:
        return sum(count * steps for count, steps in zip(self.units, self.steps)) + self.final_units * self.final_steps


def forecast(config: SearchConfig) -> Forecast:
    """What follows from the numbers in a search file; how many trials go on is about right."""
    levels = registry.make(config.scheduler.name, **config.scheduler.options).forecast(config.budget.trials)
    finals = config.finals
    return Forecast(
        rungs=tuple(level.steps for level in levels),
        units=tuple(level.units for level in levels),
        steps=tuple(level.steps - level.start for level in levels),
        final_units=(min(finals.top, config.budget.trials) + 1) * finals.seeds if finals.top else 0,
        final_steps=finals.steps,
        workers=_workers(config),
    )


def _workers(config: SearchConfig) -> int | None:
    options = config.runner.options
    if config.runner.name == "inline":
        return 1
    if options.get("workers"):
        return int(options["workers"])
    if options.get("address"):
        return None
    return max(1, math.floor((os.cpu_count() or 1) / float(options.get("cpus", 1))))
