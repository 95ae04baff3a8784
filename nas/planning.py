"""What a search would do: the space, the baselines, the cost of a trial, the time. Trains a few steps and no more."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass
from typing import Any

from nas import assembly
from nas.config import SearchConfig
from nas.reporting import short
from nas.work import Work
from searchspace.build import cost

SAMPLES = 25
TIMED_STEPS = 3


@dataclass(frozen=True)
class Plan:
    """A search before it runs. Times are for one worker of this machine, from timed steps of the median sample."""

    study: str
    points: int | None
    continuous: int
    infeasible: float  # share of random points that break a constraint or do not build
    baselines: tuple[str, ...]
    trials: int
    rungs: tuple[int, ...]
    parameters: tuple[int, int, int]  # lowest, median, highest of the samples
    flops: tuple[int, int, int]
    seconds_a_step: float
    units: tuple[int, ...]  # about how many, by rung
    final_units: int
    minutes: float  # on one worker
    limit_minutes: float | None

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def as_text(self) -> str:
        points = "infinitely many" if self.points is None else f"{self.points:,}"
        rungs = ", ".join(f"{count} to {steps} steps" for count, steps in zip(self.units, self.rungs))
        lines = [
            f"study       {self.study}",
            f"space       {points} points; {self.infeasible:.0%} of random ones break a constraint",
            f"baselines   {', '.join(self.baselines) or 'none'}",
            f"parameters  {_range(self.parameters)}",
            f"flops       {_range(self.flops)} a sequence",
            f"trials      {self.trials}: about {rungs}",
            f"finals      {self.final_units} units",
            f"time        {self.seconds_a_step * 1000:.0f} ms a step; about {self.minutes:.1f} minutes on one worker",
        ]
        if self.limit_minutes:
            lines.append(
                f"limit       no new trial once the workers have trained for {self.limit_minutes:g} minutes each"
            )
        return "\n".join(lines)


def plan(config: SearchConfig) -> Plan:
    """Check everything a search needs, and estimate it."""
    space, scheduler = assembly.space(config), assembly.scheduler(config)
    generator = random.Random(config.seed)
    size = space.size()
    refused = sum(not space.feasible(space.sample(generator, feasible=False)) for _ in range(SAMPLES)) / SAMPLES
    samples = [space.sample(generator).architecture for _ in range(SAMPLES)]
    costs = [cost(each, assembly.shape(config)) for each in samples]
    by_flops = sorted(zip(costs, samples), key=lambda pair: pair[0].training_flops)
    seconds = _timed(config, by_flops[len(by_flops) // 2][1].text())
    units = _units(config, scheduler.rungs)
    finals = config.finals.top and (config.finals.top + 1) * config.finals.seeds
    steps = [scheduler.rungs[0], *(b - a for a, b in zip(scheduler.rungs, scheduler.rungs[1:]))]
    total = sum(count * each for count, each in zip(units, steps)) + finals * config.finals.steps
    return Plan(
        study=config.study,
        points=size.points,
        continuous=size.continuous,
        infeasible=refused,
        baselines=tuple(
            f"{each.short} ({short(cost(each, assembly.shape(config)).parameters)} parameters)"
            for each in assembly.baselines(config)
        ),
        trials=config.budget.trials,
        rungs=scheduler.rungs,
        parameters=_spread([each.parameters for each in costs]),
        flops=_spread([each.expected_flops for each in costs]),
        seconds_a_step=seconds,
        units=units,
        final_units=finals,
        minutes=total * seconds / 60,
        limit_minutes=config.budget.minutes,
    )


def _timed(config: SearchConfig, architecture: str) -> float:
    """Seconds a training step takes here."""
    from nas.training.unit import run

    rows = assembly.task(config).shape.rows
    work = Work(
        study=config.study,
        trial=0,
        rung=0,
        architecture=architecture,
        task={config.task.name: config.task.options},
        recipe=config.recipe,
        steps=TIMED_STEPS,
        horizon=TIMED_STEPS + 1,
        seed=config.seed,
        threads=assembly.threads(config),
        device=config.device,
        cache=str(assembly.CACHE),
        task_source=config.task_source,
    )
    outcome = run(work)
    rate = outcome.metrics.get("tokens_per_second")
    return rows / rate if rate else 0.0


def _units(config: SearchConfig, rungs: tuple[int, ...]) -> tuple[int, ...]:
    """About how many trials reach each rung."""
    factor = config.scheduler.options.get("factor", 3) if len(rungs) > 1 else 1
    return tuple(max(1, config.budget.trials // factor**rung) for rung in range(len(rungs)))


def _spread(values: list[int]) -> tuple[int, int, int]:
    return min(values), int(statistics.median(values)), max(values)


def _range(spread: tuple[int, int, int]) -> str:
    low, middle, high = (short(value) for value in spread)
    return f"{low} to {high}, median {middle}"
