"""Pooling that halves a sequence, and upsampling that restores its length, as in Funnel-Transformers.

Dai et al. 2020, "Funnel-Transformer", https://arxiv.org/abs/2006.03236, sections 2.1 and 2.2; `hourglass` documents the
options. Windows have two positions; if the length is odd, the last position is alone. B batch, T time, M = ceil(T / 2),
C width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.lanes import axis
from searchspace.primitives.attention.heads import places

Kind = Literal["mean", "max"]
Padding = Literal["min", "max"]


@dataclass(frozen=True)
class Pooling:
    """How a sequence is pooled; the options are those of `hourglass`."""

    kind: Kind
    separate_first: bool
    truncate: bool
    padding: Padding

    def length(self, length: int) -> int:
        """The length after pooling `length` positions."""
        return (length + (self.separate_first and not self.truncate) + 1) // 2

    def sequence(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """x: [B, T, C], padding: [B, T] or None -> [B, M, C]. Padded positions are left out; zeros if there are no
        others.
        """
        x = self._lined_up(x)
        if padding is None and x.shape[1] % 2 == 0:
            pairs = x.unflatten(1, (-1, 2))
            return pairs.mean(2) if self.kind == "mean" else pairs.amax(2)
        every = torch.ones(1, x.shape[1], dtype=torch.bool, device=x.device)
        real = _pairs(every if padding is None else self._lined_up(padding), False)[..., None]  # [B or 1, M, 2, 1]
        pairs = F.pad(x, (0, 0, 0, x.shape[1] % 2)).unflatten(1, (-1, 2))
        if self.kind == "mean":
            return pairs.masked_fill(~real, 0).sum(2) / real.sum(2).clamp(min=1)
        highest = pairs.masked_fill(~real, torch.finfo(x.dtype).min).amax(2)
        return highest.masked_fill(~real.any(2), 0)

    def context(self, x: Tensor, context: Context) -> Context:
        """The context of x: [B, T, C] after pooling. A pooled position has the mark of a global position, or another
        mark, if one of its pair has it; it has the segment, or another whole number, of the first of its pair.
        """
        padding = context.padding
        if padding is not None:
            pairs = _pairs(self._lined_up(padding), self.padding == "min")
            padding = pairs.all(2) if self.padding == "min" else pairs.any(2)

        def pooled(tensor: Tensor, axes: str) -> Tensor:
            if (time := axis(axes, "T")) is None:
                return tensor
            moved = tensor.movedim(time, 1)
            if moved.dtype == torch.bool:
                return _pairs(self._lined_up(moved), False).any(2)
            if not moved.is_floating_point():
                return self._lined_up(moved)[:, ::2]
            return self.sequence(moved.flatten(2), context.padding).unflatten(2, moved.shape[2:]).movedim(1, time)

        return replace(
            replace(context, positions=None, padding=None).mapped(pooled),
            positions=self._positions(places(x, context)),
            padding=padding,
        )

    def _lined_up(self, x: Tensor) -> Tensor:
        """x: [B, T, ...] -> [B, T or T + 1, ...], arranged so that consecutive pairs are pooled."""
        if not self.separate_first:
            return x
        return torch.cat([x[:, :1], x[:, :-1] if self.truncate else x], dim=1)

    def _positions(self, positions: Tensor) -> Tensor:
        """positions: [T], evenly spaced -> [M], twice as far apart. The class token keeps its distance from
        the others.
        """
        if not self.separate_first:
            return positions[::2]
        second = positions[1:2] if len(positions) > 1 else 1  # its usual position
        rest = positions[1:-1] if self.truncate else positions[1:]
        return torch.cat([2 * positions[:1] - second, rest[::2]])


def upsampled(x: Tensor, times: int, length: int, *, separate_first: bool) -> Tensor:
    """x: [B, M, C] -> [B, length, C]: each position except a class token is repeated `times` times; zeros if that is
    too short.
    """
    first, rest = (x[:, :1], x[:, 1:]) if separate_first else (x[:, :0], x)
    whole = torch.cat([first, rest.repeat_interleave(times, dim=1)], dim=1) if times > 1 else x
    return F.pad(whole[:, :length], (0, 0, 0, max(0, length - whole.shape[1])))


def _pairs(real: Tensor, beyond: bool) -> Tensor:
    """real: [B, T] -> [B, M, 2]. `beyond` is used where the last position of an odd length has no partner."""
    return F.pad(real, (0, real.shape[1] % 2), value=beyond).unflatten(1, (-1, 2))
