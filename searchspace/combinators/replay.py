"""Calls a block a second time with exactly the same result, so that a pass that keeps no activations is differentiable.

A call depends on its input, and also on random numbers, on buffers that blocks change in training, on the precision of
autocast, on choices by content, and on lanes of the context. It gives an output, and also losses and lanes.
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
from searchspace.lanes import Lane, once


@dataclass
class SideResults:
    """The results of a call other than its output: losses by name, and the lanes that it wrote."""

    losses: dict[str, list[Tensor]] = field(default_factory=dict)
    lanes: dict[str, Lane] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """All tensors of these results, of any shape, in a fixed order: losses, then lanes."""
        losses = [loss for losses in self.losses.values() for loss in losses]
        return [*losses, *(lane.tensor for lane in self.lanes.values())]

    def holding(self, tensors: Iterator[Tensor]) -> SideResults:
        """The same results with other tensors, in the order of `tensors()`."""
        losses = {name: [next(tensors) for _ in losses] for name, losses in self.losses.items()}
        return SideResults(losses, {name: replace(lane, tensor=next(tensors)) for name, lane in self.lanes.items()})

    def hand_to(self, context: Context) -> None:
        """Add these results to `context`."""
        for name, losses in self.losses.items():
            context.losses.setdefault(name, []).extend(losses)
        context.lanes.update(self.lanes)


def call(block: nn.Module, x: Tensor, context: Context) -> tuple[Tensor, SideResults]:
    """block(x, context), x: [B, T, C] -> its output and, separately, its losses and the lanes that it wrote.

    A lane that the block takes away is taken from the context.
    """
    inner = replace(context, losses={}, lanes=dict(context.lanes))
    y = block(x, inner)
    for name in context.lanes.keys() - inner.lanes.keys():
        del context.lanes[name]
    written = {name: lane for name, lane in inner.lanes.items() if context.lanes.get(name) is not lane}
    return y, SideResults(inner.losses, written)


def outside(context: Context) -> list[Tensor]:
    """The tensors of the context, of any shape, that need a gradient, each once."""
    every = {id(lane.tensor): lane.tensor for lane in context.lanes.values()}
    return [tensor for tensor in every.values() if tensor.requires_grad]


def cut_off(context: Context) -> tuple[Context, list[tuple[Tensor, Tensor]]]:
    """A copy of the context whose `outside` tensors are replaced by leaves of the same shapes, and pairs of tensor and
    leaf.

    Call it with gradients enabled. The copy holds views of the leaves, because hooks on the inputs of a module do not
    work on leaves. The copy has its own losses and lanes.
    """
    leaves: list[tuple[Tensor, Tensor]] = []

    def leaf(tensor: Tensor, _: str) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        leaves.append((tensor, tensor.detach().requires_grad_()))
        return leaves[-1][1].view_as(tensor)

    return replace(context.mapped(once(leaf)), losses={}, statistics={}), leaves


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
        # The lanes are copied, because the call may take one away.
        self.context = replace(context, choices=self.choices, lanes=dict(context.lanes))
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
