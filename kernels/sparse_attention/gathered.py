"""Block-sparse attention by copies: the keys of a query block are copied next to each other for PyTorch's attention.

B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R queries, M
key blocks of S keys, n key blocks that a query block reads, K = n * S.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.attention import masked_attention


def gathered(
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
    """Arguments and result as for `block_sparse_attention`."""
    (B, H, Tq, D), (G, Tk) = q.shape, k.shape[1:3]
    N, n = blocks.shape[2:]
    M, R, S = -(-Tk // columns), rows, columns
    allowed = readable(blocks, allowed, keys, Tk, S)
    apart = any(mask is not None and len(mask) > 1 for mask in (allowed, bias))
    order, fold = layout(B, H, N, apart=apart)

    head = torch.arange(H, device=q.device) // (H // G) + G * torch.arange(B, device=q.device)[:, None]  # [B, H]
    which = (head[:, :, None, None] * M + blocks).permute(order[:4]).flatten()

    def listed(heads: Tensor) -> Tensor:
        """[B, G, Tk, D] -> [.., n * S, D], the keys of each query block next to each other."""
        flat = _padded(heads, M * S - Tk).reshape(B * G * M, S * D)
        return flat.index_select(0, which).view(*fold, n * S, D)

    queries = _padded(q, N * R - Tq).unflatten(2, (N, R)).permute(order).reshape(*fold, R, D)
    mask = None if allowed is None else folded(allowed, B, N, order)
    if bias is None:
        out = masked_attention(queries, listed(k), listed(v), mask, None, dropout=dropout)
    else:
        out = biased_attention(queries, listed(k), listed(v), mask, folded(bias, B, N, order), dropout)
    sizes = [(B, H, N)[axis] for axis in order[:3]]
    back = [order.index(axis) for axis in range(5)]
    return out.view(*sizes, R, D).permute(back).reshape(B, H, N * R, D)[:, :, :Tq]


def _padded(x: Tensor, behind: int) -> Tensor:
    """Add zeros after the last position, always: a trace may leave the length open."""
    return F.pad(x, (0, 0, 0, behind)) if torch.compiler.is_compiling() or behind else x


def readable(blocks: Tensor, allowed: Tensor | None, keys: Tensor | None, Tk: int, S: int) -> Tensor | None:
    """`allowed` without padded keys and keys beyond the end; shapes as for `block_sparse_attention`."""
    M = -(-Tk // S)
    if keys is None and Tk == M * S:
        return allowed
    real = torch.ones(1, Tk, dtype=torch.bool, device=blocks.device) if keys is None else keys
    real = F.pad(real, (0, M * S - Tk)).unflatten(1, (M, S))
    sequence = torch.arange(len(real), device=blocks.device)[:, None, None, None]
    near = real[sequence, blocks].flatten(3)[:, :, :, None]  # [1 or B, 1 or H, N, 1, n * S]
    return near if allowed is None else allowed & near


def layout(B: int, H: int, N: int, *, apart: bool) -> tuple[tuple[int, ...], tuple[int, int]]:
    """How [B, H, N, ..] becomes the batch and the heads of one call: the order of the axes, and the two sizes.

    If the masks of the sequences are equal (not `apart`), only blocks are the batch: one mask then serves all
    sequences.
    """
    return ((0, 2, 1, 3, 4), (B * N, H)) if apart else ((2, 0, 1, 3, 4), (N, B * H))


def folded(mask: Tensor, B: int, N: int, order: tuple[int, ...]) -> Tensor:
    """[1 or B, 1 or H, 1 or N, 1 or R, K] -> a mask that broadcasts to the scores of one call."""
    mask = mask.expand(-1, -1, N, -1, -1)
    if order[0] == 0:
        return mask.expand(B, -1, -1, -1, -1).permute(order).flatten(0, 1)
    if mask.shape[1] > 1:
        mask = mask.expand(B, -1, -1, -1, -1)
    return mask.permute(order).flatten(1, 2)


def biased_attention(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, bias: Tensor, dropout: float = 0.0
) -> Tensor:
    """Attention with a bias and a mask that broadcast to the scores [B, H, Tq, Tk]; q, k, v: [B, H, .., D] -> [B, H,
    Tq, D].

    A row without any allowed key gives zeros.
    """
    mask, empty = bias.to(q.dtype), None
    if allowed is not None:
        empty = ~allowed.any(dim=3, keepdim=True)
        mask = torch.where(allowed | empty, mask, -math.inf)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out if empty is None else out.masked_fill(empty, 0)
