"""The factory: from the names in a search file to the objects that they name, one small function a part."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from nas import metrics, tasks
from nas.config.schema import Named, SearchConfig
from nas.errors import NasError, UsageError
from nas.location import CACHE
from nas.objectives import registry as objective_registry
from nas.objectives.contract import Objective, cost_of
from nas.own import blocks
from nas.own.imported import own
from nas.own.source import own_traceback
from nas.runners import registry as runner_registry
from nas.runners.contract import Runner
from nas.runners.inline import InlineOptions
from nas.schedulers import registry as scheduler_registry
from nas.schedulers.contract import Scheduler
from nas.store import Unit, UnitKind
from nas.store.records import TUNING
from nas.strategies import registry as strategy_registry
from nas.strategies.contract import Evaluate, Strategy
from nas.strategies.earlier import Earlier
from nas.tasks.contract import Task
from nas.tasks.returned import check_declared, returned
from nas.tasks.shapes import check_drawn
from nas.tasks.vocabulary import Vocabulary
from nas.training.recipe import replaced
from nas.work import Checkpoint, Work
from searchspace.cost import Shape
from searchspace.lines import Drawing
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows
from searchspace.space.space import Space


def gather_task(config: SearchConfig, folder: Path) -> SearchConfig:
    """Read the user's task file, make paths of data absolute, and prepare the task.

    `folder` is the folder of the search file. Raises NasError; an error in the user's own file keeps its traceback.
    """
    try:
        shipped, source = tasks.ship(config.task.written(), folder)
        name, options = next(iter(shipped.items()))
        found = config.model_copy(update={"task": Named(name=name, options=dict(options)), "task_source": source})
        task = prepared_task(found)
        check_declared(task)
        task.requires()
        return found.model_copy(update={"vocabulary": vocabulary(found)})
    except (NasError, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = str(folder / config.task.name)
        raise UsageError(f"The task file cannot be used:\n{own_traceback(error, where)}") from error


class Parts:
    """What a config names, each part built once, when it is first used. `parts(config)` gives the one of a config."""

    INPUTS: ClassVar = {  # the keys of a search file that a part is built from
        "task": ("task", "task_source"),
        "prepared_task": ("task", "task_source"),
        "returned": ("task", "task_source"),
        "space": ("task", "task_source", "space", "blocks"),
        "objectives": ("task", "task_source", "objectives"),
        "baselines": ("baselines",),
    }

    def __init__(self, config: SearchConfig) -> None:
        blocks.load(config.blocks)
        self.config = config
        self._read: Space | None = None  # the space of another config with the same text, perhaps of another length

    def adopt(self, other: Parts) -> None:
        """Take the parts of another config that are built from the same keys."""
        for name, keys in self.INPUTS.items():
            if name in vars(other) and all(getattr(self.config, key) == getattr(other.config, key) for key in keys):
                vars(self)[name] = vars(other)[name]
        if self.config.space == other.config.space:
            self._read = vars(other).get("space", other._read)

    @cached_property
    def task(self) -> Task:
        return tasks.loaded(_spec(self.config), self.config.task_source)

    @cached_property
    def prepared_task(self) -> Task:
        made = tasks.load_prepared(_spec(self.config), self.config.task_source, CACHE)
        check_drawn(made)
        return made

    @cached_property
    def returned(self) -> tuple[str, ...] | None:
        return returned(self.prepared_task)

    @cached_property
    def shape(self) -> Shape:
        batch = self.task.shape
        return Shape(batch=1, length=batch.length, memory=batch.memory)

    @cached_property
    def space(self) -> Space:
        read = Space.parse(self.config.space, "the space") if self._read is None else self._read
        return read.with_length(self.shape.length, read=self.shape.length * self.task.segments)

    @cached_property
    def objectives(self) -> list[Objective]:
        return [objective_registry.make(each.written(), self.shape) for each in self.config.objectives]

    @cached_property
    def baselines(self) -> list[Architecture]:
        return [Architecture.parse(text, "a baseline") for text in self.config.baselines]


def parts(config: SearchConfig) -> Parts:
    """The parts of `config`. They are kept with it, and with its copies as far as those have the same keys."""
    known = config.built.parts
    if known is None or known.config is not config:
        made = Parts(config)
        if known is not None:
            made.adopt(known)
        config.keep_parts(made)
        known = made
    return known


def _spec(config: SearchConfig) -> dict[str, Any]:
    return {config.task.name: config.task.options}


def space(config: SearchConfig) -> Space:
    """The space; constraints are computed for sequences as long as the task's. Raises SpaceError if it is invalid."""
    return parts(config).space


def task(config: SearchConfig) -> Task:
    """The task, perhaps not yet prepared. Raises UsageError if it cannot be loaded."""
    return parts(config).task


def prepared_task(config: SearchConfig) -> Task:
    """The task with its data read. Raises UsageError if it has no data, or draws other shapes than it declares."""
    return parts(config).prepared_task


def returned_metrics(config: SearchConfig) -> tuple[str, ...] | None:
    """The metrics that a dry evaluation of the task returns; None if there is no answer (`nas.tasks.returned`).

    Blocks of the user's own may report metrics too, so there is none with them.
    """
    return None if config.blocks else parts(config).returned


def vocabulary(config: SearchConfig) -> dict[str, Any] | None:
    """The vocabulary of the task as plain data; None if it has no symbols, or its data are not on this machine."""
    if config.vocabulary is not None:
        return config.vocabulary
    try:
        found = prepared_task(config).vocabulary
    except NasError:  # a study made before studies kept their vocabulary, on a machine without its data
        return None
    return found.to_dict() if isinstance(found, Vocabulary) else None


def shape(config: SearchConfig) -> Shape:
    """The shape of one sequence of the task, for which costs are computed."""
    return parts(config).shape


def costs(config: SearchConfig, architecture: Architecture) -> tuple[int, float]:
    """(parameters, FLOPs of one training step) of an architecture. Raises SpaceError if it is not valid."""
    found = cost_of(architecture, shape(config))
    return found.parameters, float(found.training_flops * task(config).shape.batch)


def drawing(config: SearchConfig, architecture: Architecture) -> dict[str, Any] | None:
    """What `searchspace.lines.kept` reads; None if the architecture halts, as its costs change with what it learns."""
    length = shape(config).length
    found = rows(architecture, Shape(length=length))
    if any(row.part.halts for row in found):
        return None
    return Drawing(length=length, rows=found).to_plain()


def step_tokens(config: SearchConfig) -> int:
    """The positions that one training step of the task reads."""
    return task(config).shape.rows


def objectives(config: SearchConfig) -> list[Objective]:
    """The objectives in their order; the first is quality. Raises UsageError for one that cannot be made."""
    return parts(config).objectives


def strategy(
    config: SearchConfig,
    space: Space,
    named: Named | None = None,
    evaluate: Evaluate | None = None,
    trials: int | None = None,
) -> Strategy:
    """A strategy of the search, or `named`, that of an arm. evaluate: the objectives that need no training.

    trials: how many are planned, for a new study; a study that exists has settled what depends on it. Raises UsageError
    for an unknown name or an invalid option.
    """
    chosen = named or config.strategy
    count = len(config.objectives)
    earlier = [Earlier.of(study, kept) for study, kept in config.learned.items() if study in _learns_from(chosen)]
    return strategy_registry.make(chosen.name, space, config.seed, count, evaluate, trials, earlier, **chosen.options)


def _learns_from(named: Named) -> tuple[str, ...]:
    written = named.options.get("learn_from", ())
    return (written,) if isinstance(written, str) else tuple(written)


def running_strategy(config: SearchConfig, space: Space, named: Named, evaluate: Evaluate | None = None) -> Strategy:
    """The strategy of an arm of a study, with the options that the study keeps.

    A new study keeps every option that later releases may change. If one is missing, the study is older than the
    option, and the strategy does what it did then. Raises UsageError for an unknown name or an invalid option.
    """
    options = {**strategy_registry.registry.earlier(named.name), **named.options}
    return strategy(config, space, named.model_copy(update={"options": options}), evaluate)


def scheduler(config: SearchConfig, *, ranks: bool = True) -> Scheduler:
    """A scheduler of the search. ranks: False makes one that does not know the objectives and can only forecast.

    Raises UsageError for an unknown name or an invalid option.
    """
    names = {each.name: str(each.direction) for each in objectives(config)} if ranks else None
    return scheduler_registry.make(config.scheduler.name, names, **config.scheduler.options)


def running_scheduler(config: SearchConfig) -> Scheduler:
    """A scheduler of a study, with the options that the study keeps, as in `running_strategy`.

    Raises UsageError for an unknown name or an invalid option.
    """
    earlier = scheduler_registry.registry.earlier(config.scheduler.name)
    kept = config.scheduler.model_copy(update={"options": {**earlier, **config.scheduler.options}})
    return scheduler(config.model_copy(update={"scheduler": kept}))


def baselines(config: SearchConfig) -> list[Architecture]:
    """The architectures that are tried first."""
    return parts(config).baselines


def runner_options(config: SearchConfig) -> runner_registry.Options:
    """The runner's options. Raises UsageError for an unknown runner or an invalid option."""
    return runner_registry.options(config.runner.name, config.runner.options)


def runner(config: SearchConfig, say: Callable[[str], None] = lambda text: None) -> Runner:
    """The runner, started; Ray is imported only if it is asked for. Raises NasError if it cannot be started.

    say: called with a note if units cannot run in a child process, because it could not import what they use.
    """
    options = runner_options(config)
    if not isinstance(options, InlineOptions) or not options.process:
        return options.start()
    found = own(config)
    if not found.local:
        return options.start(found.modules)
    say(
        f"Units run in this process, because another one cannot import {', '.join(found.local)}. If the definition is "
        "in a module of its own, not in a script or notebook, then a crash of a unit does not end the search."
    )
    return InlineOptions(process=False).start()


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
        task=_spec(config),
        recipe=replaced(config.recipe, unit.recipe or {}),
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
        blocks=config.blocks,
        metric=objectives(config)[0].name,
        tested=unit.operator != TUNING or any(metrics.is_on_test(each.name) for each in objectives(config)),
    )


def _absolute(folder: str | None) -> str | None:
    """A folder as every worker of this machine finds it; a URL stays as it is."""
    return folder if folder is None or "://" in folder else str(Path(folder).expanduser().absolute())
