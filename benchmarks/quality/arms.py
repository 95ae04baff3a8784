"""The strategies that are compared: ours, Optuna's samplers in Optuna's own loop, and SMAC3 if it is installed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.quality.table import Table, Values
from nas.strategies.contract import NothingLeft, Result, Started, Strategy
from nas.strategies.registry import make
from searchspace.tree import Choice

OURS = ("random", "aging_evolution", "nsga2", "model")
PEERS = ("optuna NSGAIISampler", "optuna TPESampler", "optuna GPSampler", "smac")
SLOW = {"optuna GPSampler": 100}  # evaluations at most: its proposals take seconds


def run(name: str, table: Table, seed: int, options: dict[str, Any]) -> Iterator[tuple[Values, float]]:
    """(values, CPU seconds of the proposal) of each evaluation in order, for the arm called `name`."""
    if name.startswith("optuna "):
        return optunas(name.partition(" ")[2], table, seed)
    if name == "smac":
        return smacs(table, seed)
    return ours(name, table, seed, options)


def ours(name: str, table: Table, seed: int, options: dict[str, Any]) -> Iterator[tuple[Values, float]]:
    """As `run`, for our strategy `name`."""
    return asked(make(name, table.space, seed, table.objectives, table.evaluate, None, **options), table)


def asked(strategy: Strategy, table: Table) -> Iterator[tuple[Values, float]]:
    """As `run`, for `strategy`, as a search with one worker uses it. No architecture is evaluated twice."""
    used: set[str] = set()
    for number in range(table.budgets[-1]):
        began = time.process_time()
        attempt = 0
        while True:
            try:
                point = strategy.ask(number, 1, attempt)[0].point
            except NothingLeft:
                return
            if point.architecture.hash not in used:
                break
            attempt += 1
        seconds = time.process_time() - began
        if table.snap:
            point = table.snap(point, used)
        used.add(getattr(point, "row", point.architecture.hash))
        used.add(point.architecture.hash)
        values = table.values(point)
        began = time.process_time()
        strategy.start(Started(number, point))
        strategy.tell(Result(number, 0, 1, point, values))
        yield values, seconds + time.process_time() - began


def optunas(sampler: str, table: Table, seed: int) -> Iterator[tuple[Values, float]]:
    """One of Optuna's samplers in Optuna's own loop, where a repeated point is an evaluation."""
    import warnings

    import optuna

    from nas.strategies._optuna.holes import suggest

    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = getattr(optuna.samplers, sampler)(seed=seed)
    study = optuna.create_study(directions=["minimize"] * table.objectives, sampler=made)
    used: set[str] = set()
    for _ in range(table.budgets[-1]):
        began = time.process_time()
        trial = study.ask()
        point = table.space.realise(partial(suggest, trial))
        seconds = time.process_time() - began
        if table.snap:
            point = table.snap(point, used)
            used.add(point.row)
        values = table.values(point)
        began = time.process_time()
        study.tell(trial, values)
        yield values, seconds + time.process_time() - began


def smacs(table: Table, seed: int) -> Iterator[tuple[Values, float]]:
    """SMAC3 with ParEGO for several objectives; holes that are not active are drawn and ignored."""
    from ConfigSpace import Categorical, ConfigurationSpace, Float
    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario
    from smac.multi_objective.parego import ParEGO
    from smac.runhistory.dataclasses import TrialValue

    from searchspace.language.holes import from_unit, labels

    space = ConfigurationSpace(seed=seed)
    kinds = _holes(table.space)
    for path, hole in kinds.items():
        space.add(Categorical(path, range(len(labels(hole)))) if isinstance(hole, Choice) else Float(path, (0.0, 1.0)))
    names = [f"objective{index}" for index in range(table.objectives)]
    scenario = Scenario(space, objectives=names, n_trials=table.budgets[-1], deterministic=True, seed=seed)
    several = ParEGO(scenario) if table.objectives > 1 else None
    facade = Facade(scenario, lambda config, seed=0: 0.0, multi_objective_algorithm=several, overwrite=True)
    used: set[str] = set()

    def chosen(config: Any, path: str, hole: Any) -> Any:
        value = config[path]
        return labels(hole)[int(value)] if isinstance(hole, Choice) else from_unit(hole, float(value))

    for _ in range(table.budgets[-1]):
        began = time.process_time()
        info = facade.ask()
        point = table.space.realise(partial(chosen, info.config))
        seconds = time.process_time() - began
        if table.snap:
            point = table.snap(point, used)
            used.add(point.row)
        values = table.values(point)
        began = time.process_time()
        facade.tell(info, TrialValue(cost=list(values) if table.objectives > 1 else values[0]))
        yield values, seconds + time.process_time() - began


def _holes(space: Any) -> dict[str, Any]:
    """Every hole of a space, by path; for a space that does not list them, those of some random points."""
    if hasattr(space, "dimensions"):
        return dict(space.dimensions)
    found: dict[str, Any] = {}
    rng = random.Random(0)

    def record(path: str, hole: Any) -> Any:
        found[path] = hole
        return rng.choice(hole.options)

    space.realise(record)
    return found
