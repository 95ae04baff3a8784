"""What the probes have in common: a direction, a backward pass of the loss, and what a forward pass shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nas.objectives.contract import Direction, ProbeObjective
from nas.tasks.contract import Batch, Task
from searchspace.contract import Context
from searchspace.cost import Shape


class Probe(ProbeObjective):
    """A probe whose larger values count as better, unless `direction` says otherwise."""

    def __init__(self, shape: Shape, direction: Direction = Direction.MAXIMISE) -> None:
        super().__init__(shape)
        self.direction = direction


def check_examples(name: str, task: Task) -> None:
    """Raise ValueError if a batch of `task` has fewer than two examples, which the probe `name` compares."""
    if task.shape.batch < 2:
        raise ValueError(f"{name} needs a batch of at least two examples, but the task has {task.shape.batch}.")


def loss_of(model: nn.Module, batch: Batch, task: Task) -> Tensor:
    """The loss that training would minimise, a scalar with a gradient."""
    context = Context()
    loss = task.loss(model, batch, context)
    return loss + context.loss().to(loss.device)


def trained(model: nn.Module) -> list[nn.Parameter]:
    """The parameters with a gradient."""
    return [each for each in model.parameters() if each.grad is not None]


@dataclass
class Seen:
    """What a forward pass showed. entered: the output of the first layer, from which gradients can be asked, [B, ...].
    output: of the model. linear: the output of every linear layer."""

    entered: Tensor | None = None
    output: Tensor | None = None
    linear: list[Tensor] = field(default_factory=list)

    def of_model(self) -> tuple[Tensor, Tensor]:
        """(entered, output). Raises ValueError if the task's loss does not call the model."""
        if self.entered is None or self.output is None:
            raise ValueError("the task's loss does not call the model, so its output cannot be seen.")
        return self.entered, self.output


@contextmanager
def watched(model: nn.Module) -> Iterator[Seen]:
    """What the forward passes inside the block show."""
    seen = Seen()

    def first(module: nn.Module, args: Any, output: Any) -> Any:
        if seen.entered is None and isinstance(output, Tensor) and output.is_floating_point():
            seen.entered = output if output.requires_grad else output.detach().requires_grad_()
            return seen.entered
        return None

    def linear(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.linear.append(output.detach())

    def last(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            seen.output = output

    hooks = [each.register_forward_hook(first) for each in model.modules() if not list(each.children())]
    hooks += [each.register_forward_hook(linear) for each in model.modules() if isinstance(each, nn.Linear)]
    hooks.append(model.register_forward_hook(last))
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def split(batch: Batch, parts: int) -> list[Batch]:
    """The examples of a batch in at most `parts` batches of nearly equal size.

    Raises ValueError if it has fewer than two examples.
    """
    count = min(parts, _examples(batch))
    if count < 2:
        raise ValueError("a batch needs at least two examples to be split.")
    return [_part(batch, index, count) for index in range(count)]


def _examples(batch: Any) -> int:
    """The size of the first dimension of the first tensor."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 0
    items = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple | list) else ()
    return next(filter(None, map(_examples, items)), 0)


def _part(batch: Any, index: int, count: int) -> Any:
    if isinstance(batch, Tensor):
        return torch.tensor_split(batch, count)[index] if batch.ndim else batch
    if isinstance(batch, dict):
        return {name: _part(each, index, count) for name, each in batch.items()}
    if isinstance(batch, tuple | list):
        items = [_part(each, index, count) for each in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
