"""Calls a block a second time with exactly the same result, so that a pass that keeps no activations is differentiable.

A call depends on its input, and also on random numbers, on buffers that blocks change in training, on the precision of
autocast, on choices by content, and on tensors of the context. It gives an output, and also losses and final states.
`Replay` restores what a call depends on, and `call` returns all that it gives.
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
class SideResults:
    """The results of a call other than its output: losses, and the final states that it set in the context, by their
    number.
    """

    losses: list[Tensor] = field(default_factory=list)
    finals: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """All tensors of these results in a fixed order: losses, which are scalars, then states of any shape."""
        return [*self.losses, *(state for final in self.finals.values() for state in final.values())]

    def holding(self, tensors: Iterator[Tensor]) -> SideResults:
        """The same results with other tensors, in the order of `tensors()`."""
        losses = [next(tensors) for _ in self.losses]
        return SideResults(losses, {i: {name: next(tensors) for name in final} for i, final in self.finals.items()})

    def hand_to(self, context: Context) -> None:
        """Add these results to `context`."""
        context.losses.extend(self.losses)
        for i, final in self.finals.items():
            context.finals.extend({} for _ in range(i + 1 - len(context.finals)))
            context.finals[i] = final


def call(block: nn.Module, x: Tensor, context: Context) -> tuple[Tensor, SideResults]:
    """block(x, context), x: [B, T, C] -> its output and, separately, its losses and final states.

    If the block takes the source of the context, it is taken.
    """
    inner = replace(context, losses=[], finals=list(context.finals))
    y = block(x, inner)
    context.source = inner.source
    before = context.finals
    changed = {i: final for i, final in enumerate(inner.finals) if i >= len(before) or final is not before[i]}
    return y, SideResults(inner.losses, {i: final for i, final in changed.items() if final})


def outside(context: Context) -> list[Tensor]:
    """The tensors of the context that may need a gradient: the memory [B, S, C], final states, the source [B, S, C]."""
    found = [context.memory, *(final[name] for final in context.finals for name in final)]
    found.append(None if context.source is None else context.source.x)
    return [tensor for tensor in found if tensor is not None and tensor.requires_grad]


def cut_off(context: Context) -> tuple[Context, list[Tensor]]:
    """A copy of the context whose `outside` tensors are replaced by leaves of the same shapes, and these leaves in
    the same order.

    Call it with gradients enabled. The copy holds views of the leaves, because hooks on the inputs of a module do not
    work on leaves. The copy has its own lists of losses and final states.
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
    """In this context, blocks compute as in training, but keep no tensors for a backward pass.

    With gradients disabled, some blocks would compute differently: with a fused kernel that rounds differently, or
    without their loss.
    """
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: None, _lost):
        yield


def _lost(_: None) -> Tensor:
    """Raises RuntimeError: a tensor was not saved."""
    raise RuntimeError("A result computed without saved tensors cannot be differentiated; this is a bug in Tessera.")


class Replay:
    """Everything that the next call of a block depends on, so that the call can be repeated within `again`."""

    def __init__(self, block: nn.Module, x: Tensor, context: Context) -> None:
        self.block, self.device = block, x.device
        self.choices = Choices(context.choices)
        self.context = replace(context, choices=self.choices)  # a copy, because the call may take the source
        kind = x.device.type
        self.autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        self.random = _random_state(x.device) if block.training else []
        self.buffers = {name: buffer.clone() for name, buffer in block.named_buffers()} if block.training else {}

    def precision(self) -> torch.autocast:
        """The autocast of the first call, without its cache: weights cast without gradients must not be reused by other
        calls.
        """
        enabled, dtype = self.autocast
        return torch.autocast(self.device.type, enabled=enabled, dtype=dtype, cache_enabled=False)

    @contextmanager
    def again(self) -> Iterator[None]:
        """In this context, everything is as it was before the first call. Afterwards, the current state is restored."""
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
    """Replace buffers by name, and return the previous ones."""
    was: dict[str, Any] = {}
    for path, buffer in buffers.items():
        owner, _, name = path.rpartition(".")
        module = block.get_submodule(owner)
        was[path] = getattr(module, name)
        setattr(module, name, buffer)
    return was
