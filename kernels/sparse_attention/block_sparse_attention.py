"""Attention in which a block of queries reads a list of blocks of keys, in time and memory O(T * keys per query).

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4.3:
softmax over a set of pairs that is a set of blocks. B batch, H query heads, G key and value heads, Tq queries, Tk keys,
D width of one head, N query blocks of R queries, M key blocks of S keys, n key blocks that a query block reads, K = n *
S.

Implementations: `gathered` copies the keys of each query block next to each other and calls PyTorch's attention;
`blocked` does this for a few query blocks at a time; `dense` masks a matrix of all pairs; `triton` reads the lists in
its kernels. The default is `gathered`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.attention import problems
from kernels.attention.attention import masked_attention
from kernels.dispatch import tuned
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Implementation, Operation, register
from kernels.sparse_attention import problems as asked
from kernels.sparse_attention.blocked import block_sparse_blocked
from kernels.sparse_attention.gathered import biased_attention, gathered


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
    """The definition, one query block after the other; arguments as for `block_sparse_attention`, but no dropout."""
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
        # The denominator is one if the row is empty, so that neither its zeros nor their gradients become NaN.
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
    query may read a key of its list; of a block that is listed twice only one copy may be allowed. keys: [B, Tk], True
    where a key may be read. bias: as `allowed`, added to the scaled scores. dropout: the share of weights set to zero.
    A query without any key gives zeros. Without `config` the tuned choice for this problem runs. Raises ValueError if
    the number of lists is wrong.
    """
    if -(-q.shape[2] // rows) != blocks.shape[2]:
        raise ValueError(
            f"blocks must list the keys of {-(-q.shape[2] // rows)} blocks of {rows} queries, but got "
            f"{blocks.shape[2]} lists."
        )
    # A branch instead of an expression: a trace may leave the share open.
    drops = True
    if not dropout:
        drops, dropout = False, 0.0
    flags = asked.flags(q, k, v, blocks, allowed, keys, bias, drops)
    sizes = asked.sizes(q, k, blocks, rows, columns)
    call = tuned.implementation(OPERATION, q.device.type, computed(q), sizes, flags, config)
    return call(
        q, k, v, blocks, rows=rows, columns=columns, allowed=allowed, keys=keys, bias=bias, dropout=dropout
    )  # fmt: skip


def distances(blocks: Tensor, *, rows: int, columns: int) -> Tensor:
    """[1 or B, 1 or H, N, R, n * S]: the distance j - i of each listed key from each query; blocks as above."""
    steps = torch.arange(blocks.shape[2] * rows, device=blocks.device).view(-1, rows, 1)
    keys = (blocks[..., None] * columns + torch.arange(columns, device=blocks.device)).flatten(3)
    return keys[:, :, :, None] - steps


def by_distance(table: Tensor, place: Tensor) -> Tensor:
    """table: [H, distances], place: indices [1 or B, 1 or H, ...] -> [1 or B, H, ...]; indices are clipped to the
    table.
    """
    head = torch.arange(len(table), device=table.device).view(-1, *[1] * (place.dim() - 2))
    return table[head, place.clamp(0, table.shape[1] - 1)]


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
        """[1 or B, 1 or H, 1 or N, 1 or R, K] by place in the lists -> [1 or B, 1 or H, Tq, Tk] by key, else zeros.

        Values are added, so a second copy of a block that is not allowed does not overwrite the first.
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
    from kernels.sparse_attention.block_sparse_triton import block_sparse_triton

    tiles = [options.pop(name) for name in problems.TILES if name != "precision"]
    out, _ = block_sparse_triton(q, k, v, blocks, precision=precision, forward=tiles[:4], backward=tiles[4:], **options)
    return out


OPERATION = register(
    Operation(
        name="block_sparse_attention",
        reference=block_sparse_attention_reference,
        implementations={
            each.name: each
            for each in (
                Implementation("gathered", gathered, files=("kernels.attention.attention",)),
                Implementation(
                    "blocked",
                    _blocked,
                    asked.TOGETHER,
                    default={"together": 16},
                    refuses=asked.drops,
                    files=(
                        "kernels.sparse_attention.blocked",
                        "kernels.sparse_attention.gathered",
                    ),
                ),
                Implementation(
                    "dense",
                    _dense,
                    refuses=asked.refuses_dense,
                    files=("kernels.sparse_attention.gathered",),
                ),
                Implementation(
                    "triton",
                    _triton,
                    problems.TILES,
                    (problems.fits, asked.varies_what_runs),
                    default=problems.EVERYWHERE,
                    suited=asked.suited,
                    refuses=asked.needs_tiles,
                    files=(
                        "kernels.sparse_attention.block_sparse_triton",
                        "kernels.sparse_attention.kernels_triton",
                        "kernels.attention.tiles_triton",
                    ),
                ),
            )
        },
        inputs=asked.inputs,
        problems=asked.problems,
        default=lambda problem: "gathered",
        sizes=asked.SIZES,
        flags=asked.FLAGS,
        plain=gathered,
    )
)
