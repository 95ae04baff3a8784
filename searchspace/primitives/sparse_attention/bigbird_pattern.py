"""The pattern of BigBird attention: which blocks of keys each block of queries reads, and the random draws.

Zaheer et al. 2020, "Big Bird", https://arxiv.org/abs/2007.14062, appendix D. Draws use Floyd's algorithm: r of m
without repetition in r steps (Bentley and Floyd 1987, "A Sample of Brilliance", https://doi.org/10.1145/30401.315746).
The random numbers come from a hash, not from a generator: there is no state, and the draws of a row depend only on its
number and m. P patterns (1, or one for each sequence), H heads, N blocks, n of them listed, b positions of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Pattern:
    """blocks: [P, H, N, n], the blocks that each block reads. allowed: [P, 1, N, 1, n * b], False for a block that is
    in the list a second time or does not exist. ends: [P, 2], the first and the last block, which read everything.
    """

    blocks: Tensor
    allowed: Tensor
    ends: Tensor


def pattern(
    lengths: Tensor, count: int, *, heads: int, block: int, drawn: int, seed: tuple[int, int], some_short: bool
) -> Pattern:
    """The pattern of sequences with the real lengths `lengths`, [P], which are padded to `count` blocks.

    A sequence of at most (5 + 2 drawn) blocks reads all of them. `some_short` makes the lists long enough for that.
    """
    device = lengths.device
    last = (-(-lengths // block) - 1)[:, None, None]  # [P, 1, 1]
    i = torch.arange(count, device=device)[None, None, :]  # [1, 1, N]
    drawn_blocks = random_blocks(i, last, heads, drawn, seed)  # [P, H, N, drawn]
    near = torch.stack(torch.broadcast_tensors(torch.zeros_like(i), i - 1, i, i + 1, last), dim=3)  # [P, 1, N, 5]
    # Next to an end block, the neighbour is the end block itself, which is already in the list.
    once = torch.stack(torch.broadcast_tensors(i >= 0, i > 1, i > 0, i + 1 < last, i < last), dim=3)
    blocks = torch.cat([near.expand(-1, heads, -1, -1), drawn_blocks], dim=3)
    once = F.pad(once, (0, drawn), value=True)
    if some_short:
        all_blocks = torch.arange(5 + 2 * drawn, device=device)
        short = (lengths <= len(all_blocks) * block)[:, None, None, None]
        blocks = torch.where(short, all_blocks, F.pad(blocks, (0, drawn)))
        once = short | F.pad(once, (0, drawn))
        last = torch.where(short[:, :, :, 0], 1, last)  # any two blocks: all blocks read everything
    ends = torch.cat([torch.zeros_like(last), last], dim=2)[:, 0]
    return Pattern(blocks.clamp(0, count - 1), once.repeat_interleave(block, dim=3)[:, :, :, None], ends)


def random_blocks(i: Tensor, last: Tensor, heads: int, drawn: int, seed: tuple[int, int]) -> Tensor:
    """i: [1, 1, N] blocks, last: [P, 1, 1] -> [P, H, N, drawn] distinct blocks, none of them an end or near block i.

    Rows of the end blocks and beyond are not used and hold arbitrary numbers.
    """
    first = (i - 1).clamp(min=1)  # the neighbours are consecutive blocks between the ends
    run = torch.minimum(i + 1, last - 1) - first + 1
    free = last - 1 - run
    head = torch.arange(heads, device=i.device)[None, :, None]
    state = _mixed(_mixed(head + seed[0] * 0x9E3779B9 + seed[1] * 0x85EBCA6B) + i)  # [1, H, N]
    ranks: list[Tensor] = []
    for step in range(drawn):
        top = (free - drawn + step).clamp(min=0)
        rank = _mixed(state + step) % (top + 1)
        taken = torch.zeros_like(rank, dtype=torch.bool)
        for before in ranks:
            taken = taken | (rank == before)
        ranks.append(torch.where(taken, top, rank))
    empty = state.new_zeros(len(last), heads, i.shape[2], 0)
    found = 1 + torch.cat([empty, *(rank[..., None] for rank in ranks)], dim=3)
    return found + torch.where(found >= first[..., None], run[..., None], 0)


def _mixed(x: Tensor) -> Tensor:
    """x: any shape of int64 -> a 32-bit hash of each: `lowbias32`, Wellons 2018,
    https://nullprogram.com/blog/2018/07/31.
    """
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
