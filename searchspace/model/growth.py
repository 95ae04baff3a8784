"""Larger models that compute the same function as a smaller one, so that a child continues from its parent's training.

Chen, Goodfellow & Shlens 2016, "Net2Net", https://arxiv.org/abs/1511.05641. `deepened` adds layers whose residual sums
add zero. `widened` adds hidden units with zero output weights. `unshared` copies one set of weights for each step. Each
returns the larger architecture and its weights. At first the outputs are equal, and gradients reach all new parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from searchspace.backbones.initialisation import last_projections
from searchspace.combinators.residual import Residual
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.primitives.feedforward.feed_forward import FeedForward
from searchspace.primitives.feedforward.gated_feed_forward import GatedFeedForward
from searchspace.tree import Block

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Grown:
    """An architecture and the weights for its module."""

    architecture: Architecture
    weights: dict[str, Tensor]


def deepened(architecture: Architecture, weights: Weights, start: int, stop: int, field: str = "body") -> Grown:
    """Repeats the blocks `start` to `stop - 1` of the list `field` directly after them; the copies add zero.

    Indices count the blocks with repeats expanded. Raises ValueError if a block is not a pre-norm residual, or does not
    end with a linear map.
    """
    blocks = _blocks(architecture, field)
    if not 0 <= start < stop <= len(blocks):
        raise ValueError(f"start and stop must name blocks from 0 to {len(blocks)}, but got {start} and {stop}.")
    order = [*range(stop), *range(start, len(blocks))]
    child = _with(architecture, field, tuple(blocks[i] for i in order))
    renamed = _renamed(weights, field, {new: str(old) for new, old in enumerate(order)})
    module = _loaded(child, renamed)
    for index in range(stop, 2 * stop - start):
        _add_nothing(getattr(module, field)[index], index)
    return Grown(child, _copied(module))


def unshared(architecture: Architecture, weights: Weights, index: int, field: str = "body") -> Grown:
    """Replaces the `repeat` with shared weights at `index` of the list `field` by copies of its blocks.

    Raises ValueError if there is no such repeat, or if it has a signal.
    """
    blocks = _blocks(architecture, field)
    repeat = blocks[index] if 0 <= index < len(blocks) else None
    if repeat is None or repeat.name != "repeat" or not repeat.fields["share_weights"]:
        found = repeat and repeat.name
        raise ValueError(f"{field}[{index}] must be a repeat with share_weights: true, but is {found}.")
    if repeat.fields["signal"] != "none":
        raise ValueError(f"{field}[{index}] has a signal, which copies with their own weights do not get.")
    of: Any = repeat.fields["of"]
    times: Any = repeat.fields["times"]
    child = _with(architecture, field, (*blocks[:index], *of * times, *blocks[index + 1 :]))
    before = {i: str(i) for i in range(index)}
    copies = {index + i: f"{index}.of.0.{i % len(of)}" for i in range(times * len(of))}
    after = {i + times * len(of) - 1: str(i) for i in range(index + 1, len(blocks))}
    return Grown(child, _copied(_loaded(child, _renamed(weights, field, before | copies | after))))


def widened(architecture: Architecture, weights: Weights, times: int = 2) -> Grown:
    """Multiplies the hidden units of each feed-forward block, gated or not, by `times`; new units have no effect.

    Raises ValueError if there is no such block, or if `times` is below 2.
    """
    if times < 2:
        raise ValueError(f"times must be at least 2, but got {times}.")
    child = Architecture.from_block(_mapped(architecture.root, lambda block: _wider(block, times)))
    if child == architecture:
        raise ValueError("there is no feed_forward and no gated_feed_forward to widen.")
    module = build(child)
    grown = dict(weights)
    for name, part in module.named_modules():
        if isinstance(part, FeedForward | GatedFeedForward):
            halves = 2 if isinstance(part, GatedFeedForward) else 1
            grown.update(_widened(f"{name}.", weights, part.state_dict(), halves))
    module.load_state_dict(grown)
    return Grown(child, _copied(module))


def _blocks(architecture: Architecture, field: str) -> tuple[Block, ...]:
    blocks = architecture.root.fields.get(field)
    if not isinstance(blocks, tuple):
        lists = [name for name, value in architecture.root.fields.items() if isinstance(value, tuple)]
        raise ValueError(f"field must name a list of blocks of the {architecture.root.name}: {', '.join(lists)}.")
    return blocks  # type: ignore[return-value]


def _with(architecture: Architecture, field: str, blocks: tuple[Block, ...]) -> Architecture:
    return Architecture.from_block(Block(architecture.root.name, {**architecture.root.fields, field: blocks}))


def _renamed(weights: Weights, field: str, places: Mapping[int, str]) -> dict[str, Tensor]:
    """`weights` with the blocks at new places; `places` maps the new index to the old one."""
    done = {name: value for name, value in weights.items() if not name.startswith(f"{field}.")}
    for new, old in places.items():
        prefix = f"{field}.{old}."
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        done.update({f"{field}.{new}.{name}": value for name, value in own.items()})
    return done


def _loaded(architecture: Architecture, weights: Weights) -> nn.Module:
    module = build(architecture)
    module.load_state_dict(weights)
    return module


def _copied(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@torch.no_grad()
def _add_nothing(module: nn.Module, index: int) -> None:
    outputs = list(last_projections(module.of)) if isinstance(module, Residual) and module.pre else []
    if not outputs:
        raise ValueError(
            f"the block copied to place {index} must be a pre-norm residual that ends with a linear map, so that it "
            "can add zero. A post-norm residual would be normalised twice."
        )
    for output in outputs:
        for parameter in output.parameters():
            parameter.zero_()


def _mapped(block: Block, change: Callable[[Block], Block]) -> Block:
    """`block` with `change` applied to each block in it."""

    def mapped(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(mapped, value))
        return _mapped(value, change) if isinstance(value, Block) else value

    return change(Block(block.name, {name: mapped(value) for name, value in block.fields.items()}))


def _wider(block: Block, times: int) -> Block:
    if block.name not in ("feed_forward", "gated_feed_forward"):
        return block
    fields: Mapping[str, Any] = block.fields
    if fields.get("inner_norm"):
        raise ValueError("a feed_forward with an inner norm cannot be widened: the norm would see the new units.")
    if fields["hidden"] is not None:
        return Block(block.name, {**fields, "hidden": times * fields["hidden"]})
    return Block(block.name, {**fields, "expand": times * fields["expand"]})


def _widened(prefix: str, old: Weights, fresh: Weights, halves: int) -> dict[str, Tensor]:
    """The weights of a wider feed-forward block. New units have `fresh` input weights and zero output weights.

    halves: 2 if the inner map computes gates and values, otherwise 1.
    """
    done = {}
    for name, new in fresh.items():
        mine = old[prefix + name]
        grown = new.clone() if name.startswith("inner.") else torch.zeros_like(new)
        if name == "output.weight":
            grown[:, : mine.shape[1]] = mine
        elif name.startswith("output."):
            grown.copy_(mine)
        else:
            for target, source in zip(grown.chunk(halves), mine.chunk(halves), strict=True):
                target[: len(source)] = source
        done[prefix + name] = grown
    return done
