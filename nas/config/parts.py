"""The parts of a search file: the objects that its names stand for, each built once, when it is first needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from nas import metrics, tasks
from nas.config.schema import Named, SearchConfig
from nas.location import CACHE
from nas.objectives import registry as objective_registry
from nas.objectives.contract import Objective, cost_of
from nas.own import blocks
from nas.own.imported import own
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
from nas.training.recipe import replaced
from nas.work import Checkpoint, Work, evaluated
from searchspace.cost import Shape
from searchspace.lines import Drawing
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows
from searchspace.space.space import Space

ALONE = (
    "Units run in this process, because another one cannot import {}. If the definition is in a module of its own, not "
    "in a script or notebook, then a crash of a unit does not end the search."
)


class Parts:
    """The parts of `config`; `parts(config)` gives them. known: those of the config that it was copied from."""

    def __init__(self, config: SearchConfig, known: Parts | None = None) -> None:
        blocks.load(config.blocks)
        self.config = config
        if known is not None and known.spec == self.spec and known.config.task_source == config.task_source:
            for name in ("space", "objectives"):
                if name in vars(known) and getattr(known.config, name) == getattr(config, name):
                    vars(self)[name] = vars(known)[name]

    def __eq__(self, other: object) -> bool:
        return True  # what is built is no part of the value of a config

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # another process builds its own

    @property
    def spec(self) -> dict[str, Any]:
        """The task as workers load it."""
        return {self.config.task.name: self.config.task.options}

    @cached_property
    def task(self) -> Task:
        """The task, perhaps not yet prepared. Raises UsageError if it cannot be loaded."""
        return tasks.loaded(self.spec, self.config.task_source)

    @cached_property
    def prepared_task(self) -> Task:
        """The task with its data read. Raises UsageError if it has no data."""
        return tasks.load_prepared(self.spec, self.config.task_source, CACHE)

    @cached_property
    def shape(self) -> Shape:
        """The shape of one sequence of the task, for which costs are computed."""
        batch = self.task.shape
        return Shape(batch=1, length=batch.length, memory=batch.memory)

    @cached_property
    def space(self) -> Space:
        """The space. Raises SpaceError if it is invalid."""
        return self.space_of(self.config.space)

    def space_of(self, text: str) -> Space:
        """The space with this text; its constraints are computed for sequences as long as the task's."""
        length = self.shape.length
        return Space.parse(text, "the space").with_length(length, read=length * self.task.segments)

    @cached_property
    def objectives(self) -> list[Objective]:
        """The objectives in their order; the first is quality. Raises UsageError for one that cannot be made."""
        return [objective_registry.make(each.written(), self.shape) for each in self.config.objectives]

    @cached_property
    def baselines(self) -> list[Architecture]:
        """The architectures that are tried first."""
        return [Architecture.parse(text, "a baseline") for text in self.config.baselines]

    def costs(self, architecture: Architecture) -> tuple[int, float]:
        """(parameters, FLOPs of one training step) of an architecture. Raises SpaceError if it is not valid."""
        found = cost_of(architecture, self.shape)
        return found.parameters, float(found.training_flops * self.task.shape.batch)

    def drawing(self, architecture: Architecture) -> dict[str, Any] | None:
        """What `searchspace.lines.kept` reads; None if the architecture halts, as its costs change with what it
        learns.
        """
        length = self.shape.length
        found = rows(architecture, Shape(length=length))
        if any(row.part.halts for row in found):
            return None
        return Drawing(length=length, rows=found).to_plain()

    def strategy(
        self, named: Named, space: Space, evaluate: Evaluate | None = None, trials: int | None = None
    ) -> Strategy:
        """The strategy of the search or of an arm. evaluate: the objectives that need no training. trials: how many are
        planned, for a new study. Raises UsageError for an unknown name or an invalid option.
        """
        wanted = named.options.get("learn_from", ())
        from_studies = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        earlier = [Earlier.of(study, kept) for study, kept in self.config.learned.items() if study in from_studies]
        count, seed = len(self.config.objectives), self.config.seed
        return strategy_registry.make(named.name, space, seed, count, evaluate, trials, earlier, **named.options)

    def scheduler(self) -> Scheduler:
        """A scheduler without any knowledge. Raises UsageError for an unknown name or an invalid option."""
        names = {each.name: str(each.direction) for each in self.objectives}
        return scheduler_registry.make(self.config.scheduler.name, names, **self.config.scheduler.options)

    def runner(self, say: Callable[[str], None] = lambda text: None) -> Runner:
        """The runner, started; Ray is imported only if it is asked for. Raises NasError if it cannot be started.

        say: called with a note if units cannot run in a child process, because it could not import what they use.
        """
        options = runner_registry.options(self.config.runner.name, self.config.runner.options)
        if not isinstance(options, InlineOptions) or not options.process:
            return options.start()
        found = own(self.config)
        if not found.local:
            return options.start(found.modules)
        say(ALONE.format(", ".join(found.local)))
        return InlineOptions(process=False).start()

    @property
    def threads(self) -> int:
        """CPU threads of one unit: the CPUs it is given."""
        return max(1, math.floor(self.config.runner.options.get("cpus", 1)))

    def work(self, unit: Unit, horizon: int) -> Work:
        """The unit as a worker needs it; `horizon` is where the learning rate has come down."""
        config = self.config
        start = Checkpoint(unit.start_uri, unit.start_sha256 or "") if unit.start_uri else None
        probed = unit.kind is UnitKind.PROBE
        return Work(
            study=config.study,
            trial=unit.number,
            rung=unit.rung,
            architecture=unit.architecture,
            task=self.spec,
            recipe=replaced(config.recipe, unit.recipe or {}),
            steps=unit.steps,
            horizon=horizon,
            seed=unit.seed,
            kind="probe" if probed else "train",
            probes=tuple(each.written() for each in config.objectives) if probed else (),
            start=start,
            checkpoint=_absolute(config.checkpoints),
            threads=self.threads,
            device=config.device,
            seconds=config.limits.unit_seconds,
            cache=str(CACHE),
            task_source=config.task_source,
            blocks=config.blocks,
            metric=self.objectives[0].name,
            evaluated=evaluated(unit.steps, self.task.shape.rows) if unit.final is None else None,
            tested=unit.operator != TUNING or any(metrics.is_on_test(each.name) for each in self.objectives),
        )


def parts(config: SearchConfig) -> Parts:
    """The parts of `config`. They are kept with it, and its copies share those that are built from the same keys."""
    if config.built is None or config.built.config is not config:
        config.keep_built(Parts(config, config.built))
    return config.built


def _absolute(folder: str | None) -> str | None:
    """A folder as every worker of this machine finds it; a URL stays as it is."""
    return folder if folder is None or "://" in folder else str(Path(folder).expanduser().absolute())
