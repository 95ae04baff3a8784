"""From the names in a search file to the objects that do the work: one small function a part."""

from __future__ import annotations

import json
import math
import traceback
from functools import lru_cache
from pathlib import Path

from nas import architectures, tasks
from nas.config.schema import Named, SearchConfig
from nas.errors import NasError, UsageError
from nas.objectives import registry as objective_registry
from nas.objectives.contract import Objective
from nas.runners import registry as runner_registry
from nas.runners.contract import Runner
from nas.schedulers import registry as scheduler_registry
from nas.schedulers.contract import Scheduler
from nas.store import Unit, UnitKind
from nas.strategies import registry as strategy_registry
from nas.strategies.contract import Evaluate, Strategy
from nas.tasks.contract import Task
from nas.work import Checkpoint, Work
from searchspace.cost import Shape
from searchspace.language.holes import describe
from searchspace.language.support import fillings
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space
from searchspace.tree import Hole, Scalar, Value, has_holes

CACHE = Path.home() / ".cache" / "tessera-nas"  # data prepared once a node


def gather_task(config: SearchConfig, folder: Path) -> SearchConfig:
    """Take in the user's task file as text, and make paths of data absolute; `folder` is where the search file stands.

    Raises NasError. Whatever the user's own file raises is told with its traceback.
    """
    try:
        shipped, source = tasks.ship(config.task.written(), folder)
        name, options = next(iter(shipped.items()))
        found = config.model_copy(update={"task": Named(name=name, options=dict(options)), "task_source": source})
        prepared_task(found)
    except NasError:
        raise
    except (Exception, SystemExit) as error:
        where = str(folder / config.task.name)
        raise UsageError(f"The task file cannot be used:\n{_own_traceback(error, where)}") from error
    return found


def _own_traceback(error: BaseException, file: str) -> str:
    """The traceback from the first frame of the user's file on."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename != file:
        start = start.tb_next
    return "".join(traceback.format_exception(type(error), error, start)).rstrip()


def check_space(config: SearchConfig) -> None:
    """Raise ValueError when models of the space cannot fit the task, by their kind, say, or their vocabulary."""
    root, made = _space(config.space, Shape().length).root, prepared_task(config)
    wrong = [
        f"{name}: {wanted}, but the space has {name}: {_written(found)}"
        for name, wanted in made.requires().items()
        if _other_than(wanted, found := root.name if name == "kind" else root.fields.get(name))
    ]
    if wrong:
        raise ValueError(f"The task {type(made).__name__} needs {'; '.join(wrong)}.")


def _other_than(wanted: Scalar, found: Value) -> bool:
    """Whether a field can be anything but what is wanted; every value of a hole would be drawn some day."""
    return found != wanted if not has_holes(found) else any(way.value != wanted for way in fillings(found, {}) or [])


def _written(found: Value) -> str:
    return describe(found) if isinstance(found, Hole) else str(found)


def find_baseline(config: SearchConfig, name: str, folder: Path) -> Architecture:
    """A file beside the search file, or what `architectures.find` knows; it has to fit the task."""
    beside = folder / name
    found = Architecture.load(beside) if beside.is_file() else architectures.find(name)
    tasks.check(prepared_task(config), found.root)
    return found


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


def strategy(
    config: SearchConfig, space: Space, named: Named | None = None, evaluate: Evaluate | None = None
) -> Strategy:
    """The strategy of the search, or `named`, that of an arm. evaluate: the objectives that need no training."""
    chosen = named or config.strategy
    count = len(config.objectives)
    return strategy_registry.make(chosen.name, space, config.seed, count, evaluate, **chosen.options)


def scheduler(config: SearchConfig) -> Scheduler:
    return scheduler_registry.make(config.scheduler.name, **config.scheduler.options)


def baselines(config: SearchConfig) -> list[Architecture]:
    """The architectures that are tried first."""
    return [Architecture.parse(text, "a baseline") for text in config.baselines]


def runner_options(config: SearchConfig) -> runner_registry.Options:
    """The runner's options. Raises UsageError for an unknown runner or an invalid option."""
    return runner_registry.options(config.runner.name, config.runner.options)


def runner(config: SearchConfig) -> Runner:
    """The runner, started; Ray is imported only if it is asked for. Raises NasError if it cannot be started."""
    return runner_options(config).start()


def threads(config: SearchConfig) -> int:
    """CPU threads of one unit: the CPUs it is given."""
    return max(1, math.floor(config.runner.options.get("cpus", 1)))


def work(config: SearchConfig, unit: Unit, horizon: int) -> Work:
    """The unit as a worker needs it; `horizon` is where the learning rate has come down."""
    start = Checkpoint(unit.start_uri, unit.start_sha256 or "") if unit.start_uri else None
    probed = unit.kind is UnitKind.PROBE
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
        kind="probe" if probed else "train",
        probes=tuple(each.written() for each in config.objectives) if probed else (),
        start=start,
        checkpoint=_absolute(config.checkpoints),
        threads=threads(config),
        device=config.device,
        seconds=config.limits.unit_seconds,
        cache=str(CACHE),
        task_source=config.task_source,
    )


def _absolute(folder: str | None) -> str | None:
    """A folder as every worker of this machine finds it; a URL stays as it is."""
    return folder if folder is None or "://" in folder else str(Path(folder).expanduser().absolute())
