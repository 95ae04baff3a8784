"""One query per sequence against a cache of keys, in parallel splits; see `kernels.attention.decode_attention`.

Dao et al. 2023, "Flash-Decoding", https://pytorch.org/blog/flash-decoding: one query leaves most of a GPU idle unless
its keys are split. A program reads one split for the query heads of a group, which share its keys. A second kernel
combines the splits, weighted by their sums. B batch, H query heads, G key and value heads, R = H / G, S splits, D width
of a head.
"""

# mypy: allow-incomplete-defs

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.tiles_triton import _product, _rows

LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2))


@triton.jit
def _split(q_ptr, k_ptr, v_ptr, sums_ptr, lse_ptr, keys_ptr, lengths_ptr, bias_ptr, q_by, k_by, v_by, bias_by, H, G, Tk,
           scale, SPLITS: tl.constexpr, R: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
           BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """Writes the result of one split of keys, [BLOCK_R, D], and the logarithm (base 2) of its sum of exponentials."""
    split, group = tl.program_id(0) % SPLITS, (tl.program_id(0) // SPLITS).to(tl.int64)
    b, g = group // G, group % G
    r, d = tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_D)
    heads = g * R + r
    inside = (r < R)[:, None] & (d < WIDTH)[None, :]
    q = tl.load(q_ptr + b * q_by[0] + heads[:, None] * q_by[1] + d[None, :], mask=inside, other=0.0)
    k_ptr += b * k_by[0] + g * k_by[1]
    v_ptr += b * v_by[0] + g * v_by[1]
    length = Tk
    if lengths_ptr is not None:
        length = tl.minimum(tl.load(lengths_ptr + b).to(tl.int32), Tk)
    # Split the keys that are present, not the size of the cache, so that each split has some; in whole tiles.
    share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_K) * BLOCK_K
    sums, total = tl.zeros([BLOCK_R, BLOCK_D], tl.float32), tl.zeros([BLOCK_R], tl.float32)
    top = tl.full([BLOCK_R], float("-inf"), tl.float32)
    for start in tl.range(split * share, tl.minimum((split + 1) * share, length), BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        k = _rows(k_ptr, start, k_by[2], length, WIDTH, BLOCK_K, BLOCK_D)
        s = _product(q, tl.trans(k), PRECISION) * (scale * LOG2E)
        if bias_ptr is not None:
            at = bias_ptr + heads[:, None] * bias_by[0] + j[None, :]
            s += tl.load(at, mask=(r < R)[:, None] & (j < length)[None, :], other=0.0).to(tl.float32) * LOG2E
        allowed = j < length
        if keys_ptr is not None:
            allowed = allowed & (tl.load(keys_ptr + b * Tk + j, mask=j < length, other=0) != 0)
        s = tl.where(allowed[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        origin = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s - origin[:, None])
        shrink = tl.exp2(top - origin)
        total = total * shrink + tl.sum(p, 1)
        v = _rows(v_ptr, start, v_by[2], length, WIDTH, BLOCK_K, BLOCK_D)
        sums = sums * shrink[:, None] + _product(p.to(v.dtype), v, PRECISION)
        top = higher
    some = total > 0
    rows = (b * H + heads) * SPLITS + split
    lse = tl.where(some, top + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + rows, lse, mask=r < R)
    tl.store(sums_ptr + rows[:, None] * WIDTH + d[None, :], sums / tl.where(some, total, 1.0)[:, None], mask=inside)


@triton.jit
def _combine(sums_ptr, lse_ptr, out_ptr, total_ptr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, BLOCK_D: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, SPLITS), tl.arange(0, BLOCK_D)
    lse = tl.load(lse_ptr + row * SPLITS + s)
    top = tl.max(lse, 0)
    share = tl.exp2(lse - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(share, 0)
    sums = tl.load(sums_ptr + (row * SPLITS + s)[:, None] * WIDTH + d[None, :], mask=(d < WIDTH)[None, :], other=0.0)
    some = total > 0
    out = tl.sum(sums * share[:, None], 0) / tl.where(some, total, 1.0)
    tl.store(out_ptr + row * WIDTH + d, out.to(out_ptr.dtype.element_ty), mask=d < WIDTH)
    tl.store(total_ptr + row, tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf")))


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    lengths: Tensor | None,
    bias: Tensor | None,
    scale: float,
    precision: str,
    block_k: int,
    splits: int,
    num_warps: int,
    num_stages: int,
) -> tuple[Tensor, Tensor]:
    """q: [B, H, 1, D] -> out [B, H, 1, D], LSE [B, H]; arguments as for `decode_attention`."""
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
    B, H, _, D = q.shape
    G, length = k.shape[1:3]
    out, total = q.new_empty(B, H, 1, D), q.new_empty(B, H, dtype=torch.float32)
    if not out.numel():
        return out, total
    sums = q.new_empty(B, H, splits, D, dtype=torch.float32)
    lse = q.new_empty(B, H, splits, dtype=torch.float32)
    bias = bias if bias is None or bias.stride(2) == 1 else bias.contiguous()
    keys, lengths = (None if each is None else each.contiguous() for each in (keys, lengths))
    if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
        precision = "widened"
    block_d = max(16, triton.next_power_of_2(D))
    with torch.cuda.device_of(q):
        _split[(B * G * splits,)](
            q, k, v, sums, lse, keys, lengths, bias,
            q.stride()[:2], k.stride()[:3], v.stride()[:3], (0,) if bias is None else bias.stride()[:1], H, G, length,
            scale, SPLITS=splits, R=H // G, WIDTH=D, PRECISION=precision,
            BLOCK_R=max(16, triton.next_power_of_2(H // G)), BLOCK_K=block_k, BLOCK_D=block_d, num_warps=num_warps,
            num_stages=num_stages,
        )  # fmt: skip
        _combine[(B * H,)](sums, lse, out, total, WIDTH=D, SPLITS=splits, BLOCK_D=block_d, num_warps=4)
    return out, total
