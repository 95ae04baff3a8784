"""From the names in a search file to the objects that do the work: one small function a part."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nas import architectures, tasks
from nas.config import Named, SearchConfig
from nas.errors import UsageError
from nas.objectives import registry as objective_registry
from nas.objectives.contract import Objective
from nas.runners.contract import Runner
from nas.runners.inline import InlineRunner
from nas.schedulers import registry as scheduler_registry
from nas.schedulers.contract import Scheduler
from nas.store import Unit
from nas.strategies import registry as strategy_registry
from nas.strategies.contract import Strategy
from nas.tasks.contract import Task
from nas.training.recipe import Recipe
from nas.work import Checkpoint, Work
from searchspace.architecture import Architecture
from searchspace.cost import Shape
from searchspace.errors import nearest
from searchspace.space import Space

RUNNERS = ("inline", "ray")
CACHE = Path.home() / ".cache" / "tessera-nas"  # data prepared once a node


def gather_task(config: SearchConfig, folder: Path) -> SearchConfig:
    """Take in the user's task file as text, and make paths of data absolute; `folder` is where the search file stands."""
    shipped, source = tasks.ship(config.task.written(), folder)
    name, options = next(iter(shipped.items()))
    found = config.model_copy(update={"task": Named(name=name, options=dict(options)), "task_source": source})
    task(found)
    return found


def gather_baselines(config: SearchConfig, folder: Path) -> SearchConfig:
    """Take in the baselines as text: files beside the search file, or what `architectures.find` knows."""
    texts = []
    for name in config.baselines:
        beside = folder / name
        found = Architecture.load(beside) if beside.is_file() else architectures.find(name)
        tasks.check(prepared_task(config), found.root)
        texts.append(found.text())
    return config.model_copy(update={"baselines": tuple(texts)})


@lru_cache(maxsize=8)
def _space(text: str, length: int) -> Space:
    return Space.parse(text, "space").with_length(length)


def space(config: SearchConfig) -> Space:
    """The space; its constraints are about sequences as long as the task's."""
    return _space(config.space, shape(config).length)


def task(config: SearchConfig) -> Task:
    """The task, not yet prepared."""
    return tasks.load({config.task.name: config.task.options}, config.task_source)


@lru_cache(maxsize=4)
def _prepared(spec: str, source: str | None) -> Task:
    made = tasks.load(json.loads(spec), source)
    made.prepare(CACHE)
    return made


def prepared_task(config: SearchConfig) -> Task:
    """The task with its data read."""
    return _prepared(json.dumps({config.task.name: config.task.options}), config.task_source)


def shape(config: SearchConfig) -> Shape:
    """One sequence of the task: what costs are counted for."""
    return Shape(batch=1, length=task(config).shape.length)


def objectives(config: SearchConfig) -> list[Objective]:
    """The objectives in their order; the first is quality."""
    return [objective_registry.make(each.written(), shape(config)) for each in config.objectives]


def strategy(config: SearchConfig, space: Space) -> Strategy:
    count = len(config.objectives)
    return strategy_registry.make(config.strategy.name, space, config.seed, count, **config.strategy.options)


def scheduler(config: SearchConfig) -> Scheduler:
    return scheduler_registry.make(config.scheduler.name, **config.scheduler.options)


def baselines(config: SearchConfig) -> list[Architecture]:
    """The architectures that are tried first."""
    return [Architecture.parse(text, "a baseline") for text in config.baselines]


def runner(config: SearchConfig) -> Runner:
    """Where units run; Ray is imported only when it is asked for."""
    if config.runner.name == "inline":
        return InlineRunner()
    from nas.runners.ray import RayRunner

    return RayRunner(ray_options(config))


def ray_options(config: SearchConfig) -> Any:
    from nas.runners.ray import RayOptions

    return RayOptions(**config.runner.options)


def threads(config: SearchConfig) -> int:
    """CPU threads of one unit: the CPUs it is given."""
    return max(1, math.floor(config.runner.options.get("cpus", 1)))


def work(config: SearchConfig, unit: Unit, horizon: int) -> Work:
    """The unit as a worker needs it; `horizon` is where the learning rate has come down."""
    start = Checkpoint(unit.start_uri, unit.start_sha256 or "") if unit.start_uri else None
    return Work(
        study=config.study,
        trial=unit.number,
        rung=unit.rung,
        architecture=unit.architecture,
        task={config.task.name: config.task.options},
        recipe=config.recipe,
        steps=unit.steps,
        horizon=horizon,
        seed=unit.seed,
        start=start,
        checkpoint=config.checkpoints,
        threads=threads(config),
        device=config.device,
        seconds=config.limits.unit_seconds,
        cache=str(CACHE),
        task_source=config.task_source,
    )


def _check_runner(config: SearchConfig) -> None:
    name, options = config.runner.name, config.runner.options
    if name not in RUNNERS:
        raise UsageError(f"No runner is called {name!r}.{nearest(name, RUNNERS)} Known: {', '.join(RUNNERS)}.")
    if name == "ray":
        ray_options(config)
    elif options:
        raise UsageError(f"The inline runner takes no options, but got {', '.join(options)}.")


def _check_strategy(config: SearchConfig) -> None:
    if config.space:  # a space that could not be read is a problem of its own
        strategy(config, _space(config.space, Shape().length))


def _checked(check: Callable[[SearchConfig], object]) -> Callable[[SearchConfig, Path], SearchConfig]:
    def settle(config: SearchConfig, folder: Path) -> SearchConfig:
        check(config)
        return config

    return settle


# What makes each part of a search file whole, or raises NasError or ValueError. After reading, a study needs no other file.
PARTS: Mapping[str, Callable[[SearchConfig, Path], SearchConfig]] = {
    "task": gather_task,
    "objectives": _checked(lambda config: [objective_registry.make(o.written(), Shape()) for o in config.objectives]),
    "strategy": _checked(_check_strategy),
    "scheduler": _checked(scheduler),
    "runner": _checked(_check_runner),
    "recipe": _checked(lambda config: Recipe.read(config.recipe)),
    "baselines": gather_baselines,
}
