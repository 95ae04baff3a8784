"""Helpers of the attention blocks: split and merge heads, check their number, number the positions.

B batch, T time, H heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from searchspace.contract import Context


def split(x: Tensor, heads: int) -> Tensor:
    """x: [B, T, H * D] -> [B, H, T, D]. Head h takes the channels from h * D up to (h + 1) * D."""
    B, T, width = x.shape
    return x.view(B, T, heads, width // heads).transpose(1, 2)


def merge(heads: Tensor) -> Tensor:
    """heads: [B, H, T, D] -> [B, T, H * D], the inverse of `split`."""
    return heads.transpose(1, 2).flatten(2)


def places(x: Tensor, context: Context) -> Tensor:
    """x: [B, T, C] -> [T], the positions of x in its sequence.

    They come from the context if it has them. Otherwise they count from 0, or from the end of the last piece if
    streaming.
    """
    if context.positions is not None:
        return context.positions
    start = context.streams.length if context.streams else 0
    return torch.arange(start, start + x.shape[1], device=x.device)


@dataclass(frozen=True)
class Source:
    """The sequence before pooling. x: [B, S, C], positions: [S], padding and segments: [B, S] or None."""

    x: Tensor
    positions: Tensor
    padding: Tensor | None = None
    segments: Tensor | None = None


def with_source(context: Context, source: Source) -> Context:
    """A copy of the context, in which the next attention reads its keys from a longer sequence."""
    inner = replace(context, lanes=dict(context.lanes))
    for name, axes in (("x", "B S C"), ("positions", "S"), ("padding", "B S"), ("segments", "B S")):
        if (tensor := getattr(source, name)) is not None:
            inner.write(f"source.{name}", tensor, axes)
    return inner


def take_source(context: Context) -> Source | None:
    """The longer sequence to read keys from, or None. After this call, blocks read their own input again."""
    names = [name for name in context.lanes if name.startswith("source.")]
    return Source(**{name.partition(".")[2]: context.lanes.pop(name).tensor for name in names}) if names else None


def check_heads(dim: int, heads: int, key_value_heads: int | None = None) -> None:
    """Check the number of heads.

    Raises ValueError if `dim` is not a multiple of `heads`, or `heads` is not a multiple of `key_value_heads`.
    """
    if heads < 1 or dim % heads:
        raise ValueError(f"dim must be a multiple of heads, but got dim={dim}, heads={heads}.")
    if key_value_heads is not None and (key_value_heads < 1 or heads % key_value_heads):
        raise ValueError(
            f"heads must be a multiple of key_value_heads, but got heads={heads}, key_value_heads={key_value_heads}."
        )
