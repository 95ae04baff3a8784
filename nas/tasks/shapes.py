"""Checks that the batches of a task have the declared shape: `batch` sequences with `length` positions.

Costs are computed for the declared shape, so a wrong shape would rank architectures by wrong costs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nas.tasks.contract import Task
from nas.tasks.own import TaskProblem
from searchspace.contract import Context

SLACK = 1  # positions: a model that predicts the next symbol may read all but the last one of a batch


class _Seen(Exception):
    """The model was called; `inputs` are the shapes of its tensors."""

    def __init__(self, inputs: list[torch.Size]) -> None:
        self.inputs = inputs


class _Probe(nn.Module):
    """Replaces a model, and records the shapes of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        raise _Seen([each.shape for each in (*inputs, *named.values()) if isinstance(each, Tensor)])


def check_drawn(task: Task) -> None:
    """Draw one training batch of `task`, which is prepared, and check the shapes of the inputs of the model.

    Raises TaskProblem if the batch contradicts `task.shape`, `source_length` or `target_length`. A task passes if it
    does not call the model as a function, or fails before: then its first unit reports the error.
    """
    batch = task.draw("train", 0, 0)
    try:
        task.loss(_Probe(), batch, Context())
    except _Seen as seen:
        inputs = [tuple(shape) for shape in seen.inputs if len(shape) >= 2]
    except Exception:
        return
    else:
        return
    name, shape = type(task).__name__, task.shape
    if not inputs:
        return
    lengths = _lengths(task, len(inputs))
    for (sequences, positions, *_), (attribute, length) in zip(inputs, lengths):
        if abs(positions - length) > SLACK:
            raise TaskProblem(
                f"The task {name} says {attribute}: {length}, but it draws sequences of {positions} positions, so its "
                f"costs would be wrong. Set {attribute} to {positions} in the task."
            )
        if sequences != shape.batch:
            raise TaskProblem(
                f"The task {name} says batch: {shape.batch}, but it draws batches of {sequences} sequences. Set batch "
                f"to {sequences} in the task."
            )


def _lengths(task: Task, inputs: int) -> list[tuple[str, int]]:
    """For each input of the model: (the attribute that declares its length, the length)."""
    target = ("length" if task.target_length is None else "target_length", task.shape.length)
    if inputs == 1:
        return [target]
    source = ("length", task.length) if task.source_length is None else ("source_length", task.source_length)
    return [source, target]
