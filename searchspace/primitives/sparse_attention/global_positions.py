"""Global positions that a context marks: they may be anywhere and differ between sequences.

`longformer_attention` documents what they read and who reads them. Sequences with fewer than g marks get other
positions in their free places, which nothing reads. B batch, T time, H heads, D width of one head, g global positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.sparse_attention.block_sparse_attention import by_distance
from kernels.sparse_attention.sliding_window_attention import Everywhere
from searchspace.contract import Context, PositionModule


@dataclass(frozen=True)
class Marks:
    """marked: [B, T] of bool. at: [B, g], the global positions of each sequence, then others. real: [B, g], True at the
    global ones.
    """

    marked: Tensor
    at: Tensor
    real: Tensor

    @classmethod
    def of(cls, context: Context, x: Tensor, most: int) -> Marks | None:
        """The marks of x: [B, T, C]; None if there are none and `most` is 0. Padding is never global.

        Raises ValueError if a sequence has more than `most`, or the marks have another shape.
        """
        B, T, _ = x.shape
        marked = context.get("global_positions")
        if marked is None:
            marked = (torch.arange(T, device=x.device) < most).expand(B, T)
        elif marked.shape != (B, T):
            raise ValueError(f"global_positions must be [{B}, {T}], but its shape is {list(marked.shape)}.")
        if context.padding is not None:
            marked = marked & context.padding
        counts = marked.sum(1)
        if not torch.compiler.is_compiling() and (largest := int(counts.max())) > most:
            raise ValueError(
                f"at most {most} positions of a sequence may be global, but {largest} are marked; set "
                f"global_tokens: {largest}."
            )
        if not most:
            return None
        at = marked.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        return cls(marked, at, torch.arange(at.shape[1], device=x.device) < counts[:, None])

    def others(self, padding: Tensor | None) -> Tensor:
        """[B, T], True at the positions that a window reads: real ones that are not global."""
        return ~self.marked if padding is None else padding & ~self.marked

    def rows(self, x: Tensor) -> Tensor:
        """x: [B, T, ...] -> [B, g, ...], at the global positions. (`gather` would keep all of x.)"""
        return x[torch.arange(len(x), device=x.device)[:, None], self.at]

    def among(self, x: Tensor) -> Tensor:
        """x: [B, H, T, D] -> [B, H, g, D]."""
        return self.rows(x.transpose(1, 2)).transpose(1, 2)

    def everywhere(self, k: Tensor, v: Tensor, table: Tensor | None) -> GlobalKeys:
        """The keys and values, [B, H, T, D], that all queries read. table: the result of `by_distances`."""
        bias = None
        if table is not None:
            T = k.shape[2]
            distance = self.at[:, None] - torch.arange(T, device=k.device)[:, None]  # [B, T, g]
            bias = by_distance(table, distance[:, None] + T - 1)
        return GlobalKeys(self.among(k), self.among(v), keys=self.real, bias=bias)

    def bias_of_rows(self, table: Tensor) -> Tensor:
        """The bias of the global queries: [B, H, g, T]. table: the result of `by_distances`."""
        T = self.marked.shape[1]
        distance = torch.arange(T, device=table.device) - self.at[:, :, None]
        return by_distance(table, distance[:, None] + T - 1)

    def put(self, rows: Tensor, out: Tensor) -> Tensor:
        """out: [B, H, T, D] with the results `rows`, [B, H, g, D], at the global positions."""
        at = self.at[:, None, :, None].expand_as(rows)
        return torch.where(self.marked[:, None, :, None], torch.zeros_like(out).scatter(2, at, rows.to(out.dtype)), out)


@dataclass(frozen=True)
class GlobalKeys(Everywhere):
    """Keys that all queries read, of all heads."""

    def of_heads(self, heads: slice) -> Everywhere:
        """The same for some of the heads."""
        bias = None if self.bias is None else self.bias[:, heads]
        return Everywhere(k=self.k[:, heads], v=self.v[:, heads], keys=self.keys, bias=bias)


def by_distances(position: PositionModule, heads: int, x: Tensor) -> Tensor | None:
    """The bias by the distance from 1 - T to T - 1 in x: [B, T, C] -> [H, 2 T - 1], or None."""
    T = x.shape[1]
    steps = torch.arange(2 * T - 1, device=x.device)
    bias = position.bias(heads, steps[T - 1 : T], steps)
    return None if bias is None else bias[:, 0]
