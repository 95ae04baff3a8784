"""Which blocks of keys a block of queries reads in BigBird attention, and the draws of the random ones.

Zaheer et al. 2020, "Big Bird", https://arxiv.org/abs/2007.14062, appendix D. The draws are Floyd's: r of m without
repetition in r steps (Bentley and Floyd 1987, "A Sample of Brilliance", https://doi.org/10.1145/30401.315746), from a
hash in place of a generator: nothing is kept, and a row's draws are known from its number and m alone.
P patterns (1, or one for each sequence), H heads, N blocks, n of them listed, b positions of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Pattern:
    """blocks: [P, H, N, n] that each block reads. allowed: [P, 1, N, 1, n * b], False where a block is in the list
    again or is none. ends: [P, 2], the first and the last block, which read everything."""

    blocks: Tensor
    allowed: Tensor
    ends: Tensor


def pattern(
    lengths: Tensor, count: int, *, heads: int, block: int, drawn: int, seed: tuple[int, int], some_short: bool
) -> Pattern:
    """lengths: [P] positions of the sequences, which lie in `count` blocks with what pads them.

    A sequence of at most (5 + 2 drawn) blocks reads all of them; `some_short` leaves room for that in the lists.
    """
    device = lengths.device
    last = (-(-lengths // block) - 1)[:, None, None]  # [P, 1, 1]
    i = torch.arange(count, device=device)[None, None, :]  # [1, 1, N]
    drawn_blocks = random_blocks(i, last, heads, drawn, seed)  # [P, H, N, drawn]
    near = torch.stack(torch.broadcast_tensors(torch.zeros_like(i), i - 1, i, i + 1, last), dim=3)  # [P, 1, N, 5]
    # Beside an end the neighbour is the end itself, which is in the list already.
    once = torch.stack(torch.broadcast_tensors(i >= 0, i > 1, i > 0, i + 1 < last, i < last), dim=3)
    blocks = torch.cat([near.expand(-1, heads, -1, -1), drawn_blocks], dim=3)
    once = F.pad(once, (0, drawn), value=True)
    if some_short:
        all_blocks = torch.arange(5 + 2 * drawn, device=device)
        short = (lengths <= len(all_blocks) * block)[:, None, None, None]
        blocks = torch.where(short, all_blocks, F.pad(blocks, (0, drawn)))
        once = short | F.pad(once, (0, drawn))
        last = torch.where(short[:, :, :, 0], 1, last)  # two blocks, which read everything like all others
    ends = torch.cat([torch.zeros_like(last), last], dim=2)[:, 0]
    return Pattern(blocks.clamp(0, count - 1), once.repeat_interleave(block, dim=3)[:, :, :, None], ends)


def random_blocks(i: Tensor, last: Tensor, heads: int, drawn: int, seed: tuple[int, int]) -> Tensor:
    """i: [1, 1, N] blocks, last: [P, 1, 1] -> [P, H, N, drawn] different blocks, none an end or near its row's.

    Rows at or beyond the ends are not used; theirs are any numbers.
    """
    first = (i - 1).clamp(min=1)  # the neighbours are a run among the blocks between the ends
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
    """32 bits that look random: the hash `lowbias32`, Wellons 2018, https://nullprogram.com/blog/2018/07/31."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)
