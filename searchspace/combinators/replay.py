"""Calling a block a second time exactly as the first time: what a pass that keeps nothing needs to be differentiated.

Beside its input a call depends on random numbers, on buffers that blocks change while they train, on the precision of
autocast, on what blocks chose by content, and on tensors of the context; beside its output it leaves losses and final
states. All of them are put back, or handed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from searchspace.contract import Choices, Context


@dataclass
class Beside:
    """What a call leaves beside its output: losses, and the final states it set in the context, by their number."""

    losses: list[Tensor] = field(default_factory=list)
    finals: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        return [*self.losses, *(state for final in self.finals.values() for state in final.values())]

    def holding(self, tensors: Iterator[Tensor]) -> Beside:
        """The same with other tensors, in the order of `tensors()`."""
        losses = [next(tensors) for _ in self.losses]
        return Beside(losses, {i: {name: next(tensors) for name in final} for i, final in self.finals.items()})

    def hand_to(self, context: Context) -> None:
        context.losses.extend(self.losses)
        for i, final in self.finals.items():
            context.finals.extend({} for _ in range(i + 1 - len(context.finals)))
            context.finals[i] = final


def call(block: nn.Module, x: Tensor, context: Context) -> tuple[Tensor, Beside]:
    """block(x, context) with its losses and final states apart; what it takes from the context is taken."""
    inner = replace(context, losses=[], finals=list(context.finals))
    y = block(x, inner)
    context.source = inner.source
    before = context.finals
    changed = {i: final for i, final in enumerate(inner.finals) if i >= len(before) or final is not before[i]}
    return y, Beside(inner.losses, {i: final for i, final in changed.items() if final})


def outside(context: Context) -> list[Tensor]:
    """The tensors of the context that a gradient may flow into."""
    found = [context.memory, *(final[name] for final in context.finals for name in final)]
    found.append(None if context.source is None else context.source.x)
    return [tensor for tensor in found if tensor is not None and tensor.requires_grad]


def cut_off(context: Context) -> tuple[Context, list[Tensor]]:
    """The context with leaves in place of `outside`, and these leaves in the same order; to be called with gradients.

    It holds views of them: who follows the gradients of a module's inputs by hooks cannot do so at a leaf. What the
    context collects is apart.
    """
    leaves: list[Tensor] = []

    def leaf(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1].view_as(tensor)

    memory = None if context.memory is None else leaf(context.memory)
    finals = [{name: leaf(state) for name, state in final.items()} for final in context.finals]
    source = None if context.source is None else replace(context.source, x=leaf(context.source.x))
    return replace(context, memory=memory, finals=finals, source=source, losses=[], statistics={}), leaves


@contextmanager
def keeping_nothing() -> Iterator[None]:
    """Inside, blocks compute as they do in training, but no tensor is kept for a backward pass.

    Without gradients some would compute otherwise: by a fused kernel that rounds differently, or without their loss.
    """
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, _lost):
        yield


def _lost(_: None) -> Tensor:
    raise RuntimeError("What was computed without keeping anything cannot be differentiated; this is a defect.")


class Replay:
    """What the call of a block that comes next depends on, so that it can be made once more within `again`."""

    def __init__(self, block: nn.Module, x: Tensor, context: Context) -> None:
        self.block, self.device = block, x.device
        self.choices = Choices(context.choices)
        self.context = replace(context, choices=self.choices)  # a copy: the call may take the source
        kind = x.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.random = _random_state(x.device) if block.training else []
        self.buffers = {name: buffer.clone() for name, buffer in block.named_buffers()} if block.training else {}

    def precision(self) -> torch.autocast:
        """The autocast of the first call; weights cast without a gradient must not be found in a cache by others."""
        enabled, dtype = self.autocast
        return torch.autocast(self.device.type, enabled=enabled, dtype=dtype, cache_enabled=False)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside, everything is as it was before the first call; afterwards it is as it was found."""
        self.choices.rewind()
        devices = [self.device] if self.device.type == "cuda" else []
        now = _put(self.block, {name: buffer.clone() for name, buffer in self.buffers.items()})
        try:
            with torch.random.fork_rng(devices, enabled=bool(self.random)), self.precision():
                _restore_random(self.random, self.device)
                yield
        finally:
            _put(self.block, now)


def _random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _restore_random(states: list[Tensor], device: torch.device) -> None:
    if states:
        torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state(states[1], device)


def _put(block: nn.Module, buffers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace buffers by name, and give those that were there."""
    was: dict[str, Any] = {}
    for path, buffer in buffers.items():
        owner, _, name = path.rpartition(".")
        module = block.get_submodule(owner)
        was[path] = getattr(module, name)
        setattr(module, name, buffer)
    return was
