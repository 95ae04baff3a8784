"""Checks of a search file that need its task: the space, the objectives and the baselines must fit it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from nas import metrics, tasks
from nas.config import completing, factory
from nas.config.schema import GivenBaseline, Named, SearchConfig
from nas.finals.expected import STRONG, lengths
from nas.finals.plan import plan
from nas.objectives.contract import Direction, MetricObjective, Objective
from nas.schedulers.checked import CheckedScheduler
from nas.tasks.contract import Task, reported
from nas.tasks.fields import check_streaming, written_field
from nas.training.recipe import Recipe, replaced
from searchspace.errors import nearest
from searchspace.language.support import fillings
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space
from searchspace.tree import Scalar, Value, has_holes


def check_space(space: Space, task: Task) -> None:
    """Raise ValueError if models of the space cannot fit `task`: by their kind, their vocabulary, or blocks that cannot
    stream.
    """
    root = space.root
    check_streaming(task, root)
    wrong = [
        f"{name}: {wanted}, but the space has {written_field(name, found)}"
        for name, wanted in task.requires().items()
        if _other_than(wanted, found := root.name if name == "kind" else root.fields.get(name))
    ]
    if wrong:
        raise ValueError(f"The task {type(task).__name__} needs {'; '.join(wrong)}.")


def _other_than(wanted: Scalar, found: Value) -> bool:
    """Whether a field can have another value than `wanted`; a search draws each value of a hole at some time."""
    return found != wanted if not has_holes(found) else any(way.value != wanted for way in fillings(found, {}) or [])


def check_objective(objective: Objective, task: Task, name: str) -> None:
    """Raise ValueError if `objective` is not allowed in a new search, has no value for `task`, is a metric that the
    task does not report, or has another direction than that metric. name: of the task.

    The user decides the direction of a metric that the task does not declare.
    """
    if objective.refused:
        raise ValueError(f"objective {objective.name}: {objective.refused}")
    objective.check(task)
    declared = reported(task)
    if not isinstance(objective, MetricObjective) or declared is None:
        return
    known = {metric.name: metric for metric in declared}
    if not metrics.known(objective.name, known):
        near = nearest(objective.name, known)
        raise ValueError(
            f"the task {name} reports no metric {objective.name!r}.{near} It reports: {', '.join(known) or 'none'}"
        )
    metric = known.get(objective.name)
    if metric and metric.direction != objective.direction:
        better = "higher" if metric.direction == Direction.MAXIMISE else "lower"
        raise ValueError(
            f"the task {name} says that {metric.name} is better when it is {better}; write "
            f"{{metric: {metric.name}, direction: {metric.direction}}}"
        )


def check_returned(config: SearchConfig, objectives: Sequence[Objective]) -> None:
    """Raise ValueError if an objective is a metric that a task without `reports` does not return in a dry evaluation.

    This is for new studies. A task may return other metrics for other models, so a study that exists continues.
    """
    named = [each.name for each in objectives if isinstance(each, MetricObjective)]
    if not named or reported(factory.task(config)) is not None:
        return
    found = factory.returned_metrics(config)
    wrong = [] if found is None else [name for name in named if not metrics.known(name, dict.fromkeys(found))]
    if found is not None and wrong:
        raise ValueError(
            f"the task {Path(config.task.name).name} returns no metric {wrong[0]!r}.{nearest(wrong[0], found)} It "
            f"returned: {', '.join(found) or 'nothing'}, for one batch and a tiny model. If it returns others for "
            "other models, declare them in its `reports`"
        )


def check_finals(config: SearchConfig, objectives: Sequence[Objective], *, known: bool = False) -> None:
    """Raise ValueError if the first objective cannot decide the finals that `config` asks for.

    known: the study exists. Studies of older versions may have a cost there, which has a value in the finals too.
    """
    first = objectives[0]
    if first.stage == "later":
        raise ValueError(f"the first objective must be known when a trial ends, but {first.name} is found later (`on`)")
    stages = ("metric", "cost") if known else ("metric",)
    if not config.finals.top or first.stage in stages:
        return
    fit = [each.name for each in objectives if each.stage == "metric"]
    advice = f"put {' or '.join(fit)} first" if fit else "put a metric of the task first"
    found = {"cost": "a cost of the architecture", "probe": "found by a probe before training"}[first.stage]
    raise ValueError(
        f"the first objective decides the finals, so it must be a metric of the trained model, but {first.name} is "
        f"{found}; {advice}, or leave out the finals"
    )


def check_scheduler(config: SearchConfig, *, ranks: bool) -> None:
    """Raise UsageError if the scheduler cannot be made, or its first trial would train for an invalid number of steps.

    ranks: False if the objectives are not known.
    """
    CheckedScheduler(config.scheduler.name, factory.scheduler(config, ranks=ranks)).start(0)


def find_baseline(name: str, folder: Path, task: Task) -> Architecture:
    """The architecture `name`, completed for `task` by `completing.find`.

    Raises UsageError if there is no such architecture, SpaceError for a file that holds none, ValueError if it does not
    fit the task.
    """
    found = completing.find(name, task, folder=folder)
    tasks.check(task, found.root)
    return found


def find_final_baseline(name: str, folder: Path, task: Task, kind: str) -> str | GivenBaseline:
    """A baseline of the finals: the name of a family of `nas.finals.expected.STRONG`, or another architecture's text.

    Raises as `find_baseline` does, and ValueError for a family that has no model of this kind.
    """
    if name in STRONG.get(kind, ()):
        return name
    if any(name in names for names in STRONG.values()):
        raise ValueError(f"{name} has no model of kind {kind}; for this kind there are {', '.join(STRONG[kind])}")
    return GivenBaseline(name=name, text=find_baseline(name, folder, task).text())


def check_tries(config: SearchConfig) -> None:
    """Raise UsageError if the recipe does not accept an option that the finals try."""
    for options in plan(config).tries:
        Recipe.read(replaced(config.recipe, options))


def check_tried_criteria(config: SearchConfig, task: Task) -> None:
    """Raise UsageError if `task` does not fit a criterion that the finals try."""
    for name in (config.finals.tune or {}).get("criterion", ()):
        Recipe.read({"criterion": name}).check(task)


def check_winner_steps(config: SearchConfig) -> None:
    """Raise ValueError if the winner alone would be trained longer than all entrants."""
    longest, alone = lengths(config)[-1], config.finals.winner_steps
    if alone and alone[-1] > longest:
        raise ValueError(f"must be below the longest length, {longest:,} steps, but has {alone[-1]:,}")


def check_match(config: SearchConfig) -> None:
    """Raise ValueError if baselines are matched in latency and the search does not measure it."""
    if "latency" in config.finals.match and not any(map(is_latency_here, config.objectives)):
        raise ValueError(
            "to match baselines in latency, the process of the search must measure it: add {latency: {device: cpu}} to "
            "`objectives`. A latency with `on` is measured by workers"
        )


def is_latency_here(objective: Named) -> bool:
    """Whether an objective is a latency that the process of the search measures."""
    return objective.name == "latency" and not objective.options.get("on")


def check_device(name: str) -> None:
    """Raise ValueError unless `name` is written as a device; it may be one of another machine."""
    try:
        torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"there is no device {name!r}; devices are written cpu, cuda or cuda:0") from None
