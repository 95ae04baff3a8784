"""Attention in which a block of queries reads a list of blocks of keys, in time and memory of O(T * keys of a query).

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4.3:
softmax over a set of pairs that is a set of blocks.
B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R queries,
M key blocks of S keys, n key blocks that a query block reads, K = n * S.

Implementations: `gathered` copies the keys that each query block reads side by side, and PyTorch's attention does the
rest; `blocked` does so for some query blocks at a time; `dense` masks a matrix of all pairs; `triton` reads the lists
in its kernels. Where nothing was tuned: `gathered`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels import attention_problems, tuned
from kernels import block_sparse_problems as asked
from kernels.attention import masked_attention
from kernels.attention_problems import computed
from kernels.block_sparse_blocked import block_sparse_blocked, readable
from kernels.registry import Choice, Implementation, Operation, register


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
    dropout: float = 0.0,
) -> Tensor:
    """The definition, one query block after the other; arguments as for `block_sparse_attention`, but drops nothing."""
    (B, H, _, D), Tk = q.shape, k.shape[2]
    N, n = blocks.shape[2:]
    wide, K = torch.promote_types(q.dtype, torch.float32), n * columns
    if not Tk * K:
        return torch.zeros_like(q)
    Q, k, v = q.to(wide), *(heads.to(wide).repeat_interleave(H // k.shape[1], dim=1) for heads in (k, v))
    step, outs = torch.arange(columns, device=q.device), [q.new_zeros(B, H, 0, D, dtype=wide)]
    for number in range(N):
        queries = Q[:, :, number * rows : (number + 1) * rows]
        key = (blocks[:, :, number, :, None] * columns + step).flatten(2).expand(B, H, K)
        read = key < Tk
        key = key.clamp(max=Tk - 1)
        if keys is not None:
            read = read & keys[:, None].expand(B, H, Tk).gather(2, key)
        near, values = (heads.gather(2, key[..., None].expand(-1, -1, -1, D)) for heads in (k, v))
        scores = queries @ near.transpose(2, 3) / math.sqrt(D)  # [B, H, R, K]
        of_block = (slice(None), slice(None), number, slice(queries.shape[2]))
        if bias is not None:
            scores = scores + bias.expand(-1, -1, N, rows, K)[of_block]
        read = read[:, :, None].expand(scores.shape)
        if allowed is not None:
            read = read & allowed.expand(-1, -1, N, rows, K)[of_block]
        weights = (scores - scores.amax(3, keepdim=True)).exp() * read
        # A denominator of one where the row is empty, so that neither zeros nor their gradients become NaN.
        total = weights.sum(3, keepdim=True)
        outs.append(weights / torch.where(total > 0, total, 1) @ values)
    return torch.cat(outs, dim=2).to(q.dtype)


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
    config: Choice | None = None,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D].

    blocks: [1 or B, 1 or H, N, n] int64, the key blocks (of `columns` keys) that each query block (of `rows` queries)
    reads; the last block of either kind may be short. allowed: [1 or B, 1 or H, 1 or N, 1 or R, n * S], True where a
    query may read a key that is listed for it; a block that is listed twice must be allowed once. keys: [B, Tk], True
    where a key may be read. bias: as `allowed`, added to the scaled scores. dropout: the share of weights set to zero.
    A query without any key reads zeros. Without `config`: what is tuned for this problem.
    """
    if -(-q.shape[2] // rows) != blocks.shape[2]:
        raise ValueError(
            f"blocks must list the keys of {-(-q.shape[2] // rows)} blocks of {rows} queries, but got "
            f"{blocks.shape[2]} lists."
        )
    # Asked, not computed: a trace may leave the share open.
    drops = True
    if not dropout:
        drops, dropout = False, 0.0
    flags = asked.flags(q, k, v, blocks, allowed, keys, bias, drops)
    sizes = asked.sizes(q, k, blocks, rows, columns)
    call = tuned.implementation(OPERATION, q.device.type, computed(q), sizes, flags, config)
    return call(
        q, k, v, blocks, rows=rows, columns=columns, allowed=allowed, keys=keys, bias=bias, dropout=dropout
    )  # fmt: skip


def _gathered(
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
    (B, H, Tq, D), (G, Tk) = q.shape, k.shape[1:3]
    N, n = blocks.shape[2:]
    M, R, S = -(-Tk // columns), rows, columns
    allowed = readable(blocks, allowed, keys, Tk, S)
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


def _blocked(q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, *, dropout: float, **options: Any) -> Tensor:
    return block_sparse_blocked(q, k, v, blocks, **options)


def _dense(
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
    (Tq, Tk), (N, n) = (q.shape[2], k.shape[2]), blocks.shape[2:]
    step = torch.arange(columns, device=q.device)
    key = (blocks[..., None] * columns + step).flatten(3)[:, :, :, None]  # [1 or B, 1 or H, N, 1, K]

    def matrix(listed: Tensor) -> Tensor:
        """[1 or B, 1 or H, 1 or N, 1 or R, K] by places of lists -> [1 or B, 1 or H, Tq, Tk] by keys, zeros elsewhere.

        Added, so that what is listed again and not allowed there takes nothing away.
        """
        outer = [max(sizes) for sizes in zip(listed.shape[:2], blocks.shape[:2], strict=True)]
        whole = (*outer, N, rows, n * columns)
        made = listed.new_zeros(*whole[:4], -(-Tk // columns) * columns)
        made = made.scatter_add(4, key.expand(whole), listed.expand(whole))
        return made.flatten(2, 3)[:, :, :Tq, :Tk]

    once = torch.ones(1, dtype=torch.bool, device=q.device).expand(1, 1, 1, 1, n * columns)
    once = once if allowed is None else allowed
    may = matrix(once.to(torch.uint8)) > 0
    may = may if keys is None else may & keys[:, None, None]
    if bias is None:
        return masked_attention(q, k, v, may, None, dropout=dropout)
    added = matrix(torch.where(once, bias, 0))
    k, v = (heads.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for heads in (k, v))
    return biased_attention(q, k, v, may, added, dropout)


def _triton(
    q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, *, dropout: float, precision: str, **options: Any
) -> Tensor:
    from kernels.block_sparse_triton import block_sparse_triton

    tiles = [options.pop(name) for name in attention_problems.TILES if name != "precision"]
    out, _ = block_sparse_triton(q, k, v, blocks, precision=precision, forward=tiles[:4], backward=tiles[4:], **options)
    return out


OPERATION = register(
    Operation(
        name="block_sparse_attention",
        reference=block_sparse_attention_reference,
        implementations={
            each.name: each
            for each in (
                Implementation("gathered", _gathered, files=("kernels.attention",)),
                Implementation(
                    "blocked",
                    _blocked,
                    asked.TOGETHER,
                    default={"together": 16},
                    refuses=asked.drops,
                    files=("kernels.block_sparse_blocked",),
                ),
                Implementation("dense", _dense, refuses=asked.refuses_dense, files=("kernels.attention",)),
                Implementation(
                    "triton",
                    _triton,
                    attention_problems.TILES,
                    (attention_problems.fits, asked.varies_what_runs),
                    default=attention_problems.EVERYWHERE,
                    suited=asked.suited,
                    refuses=asked.needs_tiles,
                    files=(
                        "kernels.block_sparse_triton",
                        "kernels.block_sparse_kernels_triton",
                        "kernels.attention_tiles_triton",
                    ),
                ),
            )
        },
        inputs=asked.inputs,
        problems=asked.problems,
        default=lambda problem: "gathered",
        sizes=asked.SIZES,
        flags=asked.FLAGS,
    )
)
