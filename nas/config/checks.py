"""Checks of a search file that need its task: the space, the objectives and the baselines must fit it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from nas import architectures, metrics, tasks
from nas.config.schema import GivenBaseline, Named
from nas.files import is_file
from nas.finals.plan import STRONG
from nas.objectives.contract import Direction, MetricObjective, Objective
from nas.tasks.contract import Task, reported
from nas.tasks.fields import check_streaming, decided, fitted, written_field
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


def check_first(objectives: Sequence[Objective], *, finals: bool) -> None:
    """Raise ValueError if the first objective is not known when a trial ends, or cannot decide the finals.

    finals: whether the search ends with finals.
    """
    first = objectives[0]
    if first.stage == "later":
        raise ValueError(f"the first objective must be known when a trial ends, but {first.name} is found later (`on`)")
    if not finals or first.stage == "metric":
        return
    fit = [each.name for each in objectives if each.stage == "metric"]
    advice = f"put {' or '.join(fit)} first" if fit else "put a metric of the task first"
    found = {"cost": "a cost of the architecture", "probe": "found by a probe before training"}[first.stage]
    raise ValueError(
        f"the first objective decides the finals, so it must be a metric of the trained model, but {first.name} is "
        f"{found}; {advice}, or leave out the finals"
    )


def find(reference: str, task: Task, *, folder: Path | None = None, storage: str | None = None) -> Architecture:
    """The architecture that `nas.architectures.find` finds, completed for `task`, which is prepared.

    A file gets the fields that it leaves out. A model of the zoo gets all of them, if it is of the kind that the task
    needs. The architecture may still not fit the task (`nas.tasks.check`). folder: to which the name of a file is
    relative; None is the current folder. Raises UsageError if there is no such architecture, SpaceError for a file that
    holds none and for a model of the zoo that the task cannot use.
    """
    file = Path(reference) if folder is None else folder / reference
    if is_file(file):
        return architectures.of_file(file, decided(task))
    found = architectures.find(reference, storage, folder=folder)
    if not architectures.in_zoo(reference) or found.root.name != task.requires().get("kind"):
        return found
    return Architecture.parse(fitted(found, task).text(), reference)  # read again: another field may exclude a new one


def find_baseline(name: str, folder: Path, task: Task) -> Architecture:
    """The architecture `name`, completed for `task` by `find`.

    Raises UsageError if there is no such architecture, SpaceError for a file that holds none, ValueError if it does not
    fit the task.
    """
    found = find(name, task, folder=folder)
    tasks.check(task, found.root)
    return found


def find_final_baseline(name: str, folder: Path, task: Task, kind: str) -> str | GivenBaseline:
    """A baseline of the finals: the name of a family of `nas.finals.plan.STRONG`, or another architecture's text.

    Raises as `find_baseline` does, and ValueError for a family that has no model of this kind.
    """
    if name in STRONG.get(kind, ()):
        return name
    if any(name in names for names in STRONG.values()):
        raise ValueError(f"{name} has no model of kind {kind}; for this kind there are {', '.join(STRONG[kind])}")
    return GivenBaseline(name=name, text=find_baseline(name, folder, task).text())


def is_latency_here(objective: Named) -> bool:
    """Whether an objective is a latency that the process of the search measures."""
    return objective.name == "latency" and not objective.options.get("on")


def check_device(name: str) -> None:
    """Raise ValueError unless `name` is written as a device; it may be one of another machine."""
    try:
        torch.device(name)
    except (RuntimeError, TypeError):
        raise ValueError(f"there is no device {name!r}; devices are written cpu, cuda or cuda:0") from None
