"""Checks that the batches of a task have the declared shape: `batch` sequences with `length` positions.

Costs are computed for the declared shape, so a wrong shape would rank architectures by wrong costs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nas.tasks.contract import Task
from nas.tasks.own import TaskProblem

SLACK = 1  # positions: a model that predicts the next symbol may read all but the last one of a batch


def check_first(task: Task, model: nn.Module) -> RemovableHandle:
    """Check the shapes of the inputs of `model` at its first call. Remove the handle after a step of training.

    The call raises TaskProblem if they contradict `task.shape`, `source_length` or `target_length`.
    """

    def check(_model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        hook.remove()
        tensors = [each for each in (*given, *named.values()) if isinstance(each, Tensor) and each.dim() >= 2]
        for each, (attribute, length) in zip(tensors, _lengths(task, len(tensors))):
            _check(task, each.shape[0], each.shape[1], attribute, length)

    hook = model.register_forward_pre_hook(check, with_kwargs=True)
    return hook


def _check(task: Task, sequences: int, positions: int, attribute: str, length: int) -> None:
    name, batch = type(task).__name__, task.shape.batch
    if abs(positions - length) > SLACK:
        raise TaskProblem(
            f"The task {name} says {attribute}: {length}, but it draws sequences of {positions} positions, so its "
            f"costs would be wrong. Set {attribute} to {positions} in the task."
        )
    if sequences != batch:
        raise TaskProblem(
            f"The task {name} says batch: {batch}, but it draws batches of {sequences} sequences. Set batch to "
            f"{sequences} in the task."
        )


def _lengths(task: Task, inputs: int) -> list[tuple[str, int]]:
    """For each input of the model: (the attribute that declares its length, the length)."""
    target = ("length" if task.target_length is None else "target_length", task.shape.length)
    if inputs == 1:
        return [target]
    source = ("length", task.length) if task.source_length is None else ("source_length", task.source_length)
    return [source, target]
