"""The pattern of a Sparse Transformer: two sets of earlier positions, and how the heads combine them.

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4.
Strided: A1 is the last l positions including the current one, A2 every l-th position before it. Fixed: A1 is the
positions of the current block of l, A2 the last c positions of every block. H heads, T positions, l the stride, c the
summary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Part = Literal["union", "first", "second"]


@dataclass(frozen=True, kw_only=True)
class SparsePattern:
    """inclusive: the strided A1 has l + 1 positions, as in the paper's formula; in its figures and code it has l.

    runs: how many runs of c positions, counted from the end of each block, the heads read in turn: head h reads run
    h mod runs. The released code (openai/sparse_attention) calls it num_verts. 1: all heads read the last run.
    """

    name: Literal["strided", "fixed"]
    stride: int
    summary: int
    inclusive: bool
    runs: int

    @property
    def window(self) -> int:
        """The number of positions that the strided A1 reads."""
        return self.stride + self.inclusive

    def reads(self, part: Part, i: Tensor, j: Tensor, head: Tensor) -> Tensor:
        """Whether position i reads position j. i, j and the numbers of heads have shapes that broadcast; so has the
        result.
        """
        if self.name == "strided":
            first, second = i - j < self.window, (i - j) % self.stride == 0
        else:
            from_end = self.stride - 1 - j % self.stride - self.run(head) * self.summary
            first, second = i // self.stride == j // self.stride, (from_end >= 0) & (from_end < self.summary)
        read = {"union": first | second, "first": first, "second": second}[part]
        return read & (j <= i)

    def run(self, head: Tensor) -> Tensor:
        """head: any shape -> the run of positions, counted from the end of a block, that each head reads;
        same shape.
        """
        return head % self.runs if self.runs > 1 else torch.zeros_like(head[:1])

    def held(self, part: Part, length: int, heads: range) -> Tensor:
        """The positions among the first `length` that later positions may read, in order: [1 or heads, n]."""
        steps = torch.arange(length)
        if self.name == "strided":
            return steps[None, max(0, length - self.window + 1) :] if part == "first" else steps[None]
        begun = steps[length - length % self.stride :]  # the incomplete block
        if part == "first":
            return begun[None]
        ends = (torch.arange(length // self.stride) + 1) * self.stride
        shift = (self.run(torch.tensor(heads)) + 1) * self.summary
        summaries = (ends - shift[:, None])[..., None] + torch.arange(self.summary)
        return torch.cat([summaries.flatten(1), begun.expand(len(shift), -1)], dim=1)

    def held_count(self, part: Part, length: int) -> int:
        """The number of positions in `held`."""
        if self.name == "strided":
            return min(length, self.window - 1) if part == "first" else length
        complete = 0 if part == "first" else length // self.stride * self.summary
        return complete + length % self.stride

    @property
    def piece(self) -> int:
        """The size of the key blocks that make up A1 and A2 of the fixed pattern."""
        return math.gcd(self.stride, self.summary)

    def listed(self, part: Part, length: int) -> int:
        """The number of keys that a block of queries lists in the fixed pattern."""
        blocks = -(-length // self.stride)
        summaries = {"union": blocks - 1, "first": 0, "second": blocks}[part]
        return (part != "second") * self.stride + summaries * self.summary

    def lists(self, part: Part, length: int, heads: Tensor) -> tuple[Tensor, Tensor]:
        """The fixed pattern as lists of key blocks, [1, 1 or H, N, n], `piece` keys each, and a mask of the keys each
        query reads.
        """
        blocks, piece = -(-length // self.stride), self.piece
        own, end = self.stride // piece, self.summary // piece
        n, device = torch.arange(blocks, device=heads.device), heads.device
        lists, earlier = [], []
        if part != "second":
            lists.append((n[:, None] * own + torch.arange(own, device=device))[None])  # [1, N, own]
            earlier.append(torch.ones(blocks, self.stride, dtype=torch.bool, device=device))
        if part != "first":
            read = n[:-1] if part == "union" else n  # the union has the last block's summary only in its own block
            shift = (self.run(heads) + 1) * end
            summaries = ((read + 1) * own - shift[:, None])[..., None] + torch.arange(end, device=device)
            lists.append(summaries.flatten(1)[:, None].expand(-1, blocks, -1))  # [1 or H, N, .]
            before = read < n[:, None] if part == "union" else read <= n[:, None]
            earlier.append(before.repeat_interleave(self.summary, dim=1))
        many = max(len(each) for each in lists)
        listed = torch.cat([each.expand(many, -1, -1) for each in lists], dim=2)
        keys = (listed[..., None] * piece + torch.arange(piece, device=device)).flatten(2)  # [1 or H, N, n * piece]
        queries = torch.arange(blocks * self.stride, device=device).view(blocks, self.stride, 1)
        allowed = (keys[:, :, None] <= queries) & torch.cat(earlier, dim=1)[:, None]
        # If each query reads its own block and earlier summaries, the mask is the same for all heads.
        return listed[None], allowed[None, :1] if part == "union" else allowed[None]
