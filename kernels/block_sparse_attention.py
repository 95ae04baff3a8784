"""Attention in which a block of queries reads a list of blocks of keys, in time and memory of O(T * keys of a query).

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4.3:
softmax over a set of pairs that is a set of blocks. The blocks that a query block names are gathered side by side, and
one batched product does the rest; no matrix of all pairs is made.
B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R queries,
M key blocks of S keys, n key blocks that a query block reads, K = n * S.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention import masked_attention


def block_sparse_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    *,
    rows: int,
    columns: int,
    allowed: Tensor | None = None,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The definition, with a mask over all pairs; arguments as for `block_sparse_attention`."""
    (B, H, Tq, D), Tk = q.shape, k.shape[2]
    N, n = blocks.shape[2:]
    read = torch.zeros(B, H, N * rows, -(-Tk // columns) * columns, dtype=torch.bool, device=q.device)
    added = torch.zeros(read.shape, dtype=q.dtype, device=q.device)
    listed = blocks.expand(B, H, N, n)
    for place in range(n * columns):
        key = listed[..., place // columns] * columns + place % columns  # [B, H, N]
        for row in range(rows):
            may = torch.ones_like(key, dtype=torch.bool)
            if allowed is not None:
                may = allowed.expand(B, H, N, rows, n * columns)[..., row, place]
            b, h, i = may.nonzero(as_tuple=True)
            read[b, h, i * rows + row, key[b, h, i]] = True
            if bias is not None:
                value = bias.expand(B, H, N, rows, n * columns)[..., row, place]
                added[b, h, i * rows + row, key[b, h, i]] = value[b, h, i]
    read = read[:, :, :Tq, :Tk]
    if keys is not None:
        read = read & keys[:, None, None, :]
    k, v = (heads.repeat_interleave(H // k.shape[1], dim=1) for heads in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    scores = scores + added[:, :, :Tq, :Tk]
    weights = (scores - scores.amax(3, keepdim=True)).exp() * read
    total = weights.sum(3, keepdim=True)
    return weights / torch.where(total > 0, total, 1) @ v


def block_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    *,
    rows: int,
    columns: int,
    allowed: Tensor | None = None,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D].

    blocks: [1 or B, 1 or H, N, n] int64, the key blocks (of `columns` keys) that each query block (of `rows` queries)
    reads; the last block of either kind may be short. allowed: [1 or B, 1 or H, 1 or N, 1 or R, n * S], True where a
    query may read a key that is listed for it; a block that is listed twice must be allowed once. keys: [B, Tk], True
    where a key may be read. bias: as `allowed`, added to the scaled scores. A query without any key reads zeros.
    """
    (B, H, Tq, D), (G, Tk) = q.shape, k.shape[1:3]
    N, n = blocks.shape[2:]
    M, R, S = -(-Tk // columns), rows, columns
    if -(-Tq // R) != N:
        raise ValueError(f"blocks must list the keys of {-(-Tq // R)} blocks of {R} queries, but got {N} lists.")
    allowed = _readable(blocks, allowed, keys, Tk, S)
    apart = any(mask is not None and len(mask) > 1 for mask in (allowed, bias))
    order, fold = layout(B, H, N, apart=apart)

    head = torch.arange(H, device=q.device) // (H // G) + G * torch.arange(B, device=q.device)[:, None]  # [B, H]
    which = (head[:, :, None, None] * M + blocks).permute(order[:4]).flatten()

    def listed(heads: Tensor) -> Tensor:
        """[B, G, Tk, D] -> [.., n * S, D], the keys of every query block side by side."""
        flat = F.pad(heads, (0, 0, 0, M * S - Tk)).reshape(B * G * M, S * D)
        return flat.index_select(0, which).view(*fold, n * S, D)

    queries = F.pad(q, (0, 0, 0, N * R - Tq)).unflatten(2, (N, R)).permute(order).reshape(*fold, R, D)
    mask = None if allowed is None else folded(allowed, B, N, order)
    if bias is None:
        out = masked_attention(queries, listed(k), listed(v), mask, None, dropout=dropout)
    else:
        out = biased_attention(queries, listed(k), listed(v), mask, folded(bias, B, N, order), dropout)
    sizes = [(B, H, N)[axis] for axis in order[:3]]
    back = [order.index(axis) for axis in range(5)]
    return out.view(*sizes, R, D).permute(back).reshape(B, H, N * R, D)[:, :, :Tq]


def layout(B: int, H: int, N: int, *, apart: bool) -> tuple[tuple[int, ...], tuple[int, int]]:
    """How [B, H, N, ..] becomes the batch and the heads of one call: the order of the axes, and the two sizes.

    Unless the masks of the sequences lie `apart`, blocks alone are the batch: one mask then serves all sequences.
    """
    return ((0, 2, 1, 3, 4), (B * N, H)) if apart else ((2, 0, 1, 3, 4), (N, B * H))


def _readable(blocks: Tensor, allowed: Tensor | None, keys: Tensor | None, Tk: int, S: int) -> Tensor | None:
    """`allowed` without padded keys and those beyond the end."""
    M = -(-Tk // S)
    if keys is None and Tk == M * S:
        return allowed
    real = torch.ones(1, Tk, dtype=torch.bool, device=blocks.device) if keys is None else keys
    real = F.pad(real, (0, M * S - Tk)).unflatten(1, (M, S))
    sequence = torch.arange(len(real), device=blocks.device)[:, None, None, None]
    near = real[sequence, blocks].flatten(3)[:, :, :, None]  # [1 or B, 1 or H, N, 1, n * S]
    return near if allowed is None else allowed & near


def folded(mask: Tensor, B: int, N: int, order: tuple[int, ...]) -> Tensor:
    """[1 or B, 1 or H, 1 or N, 1 or R, K] -> what broadcasts to the scores of one call."""
    mask = mask.expand(-1, -1, N, -1, -1)
    if order[0] == 0:
        return mask.expand(B, -1, -1, -1, -1).permute(order).flatten(0, 1)
    if mask.shape[1] > 1:
        mask = mask.expand(B, -1, -1, -1, -1)
    return mask.permute(order).flatten(1, 2)


def distances(blocks: Tensor, *, rows: int, columns: int) -> Tensor:
    """[1 or B, 1 or H, N, R, n * S]: how far j - i lies each listed key from each query of a block."""
    steps = torch.arange(blocks.shape[2] * rows, device=blocks.device).view(-1, rows, 1)
    keys = (blocks[..., None] * columns + torch.arange(columns, device=blocks.device)).flatten(3)
    return keys[:, :, :, None] - steps


def by_distance(table: Tensor, place: Tensor) -> Tensor:
    """table: [H, distances], place: [1 or B, 1 or H, ...] into it -> [1 or B, H, ...]; beyond its ends the ends."""
    head = torch.arange(len(table), device=table.device).view(-1, *[1] * (place.dim() - 2))
    return table[head, place.clamp(0, table.shape[1] - 1)]


def biased_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    """Attention with a bias and a mask that both broadcast to the scores [B, H, Tq, Tk]; an empty row reads zeros."""
    mask, empty = bias.to(q.dtype), None
    if allowed is not None:
        empty = ~allowed.any(dim=3, keepdim=True)
        mask = torch.where(allowed | empty, mask, -math.inf)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out if empty is None else out.masked_fill(empty, 0)
