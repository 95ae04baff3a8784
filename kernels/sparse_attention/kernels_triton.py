"""Block-sparse attention in tiles: the kernel reads the lists of blocks, and keys are not copied.

The online softmax of `kernels.attention.kernels_triton` over the places of a list: place p is key p % S of the block at
p // S in the list, so a tile has keys of many small blocks or a part of a large one. The gradient of keys is computed
per key block with the inverse lists: which query blocks read a block, and at which place of their lists. B batch, H
query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R queries, M key blocks
of S keys, n key blocks that a query block reads, K = n * S places. Shared lists, masks and biases have strides of zero.
A row without any key gives zeros, and -inf for the logarithm of its sum (LSE).
"""

# mypy: allow-incomplete-defs

import triton
import triton.language as tl

from kernels.attention.tiles_triton import LN2, LOG2E, _product, _weights


@triton.jit
def _picked(pointer, row, there, stride, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    """[rows, BLOCK_D]: the rows with these numbers; zeros if a row does not exist."""
    d = tl.arange(0, BLOCK_D)
    # int64: a row times its stride overflows 32 bits on long batches.
    at = pointer + row.to(tl.int64)[:, None] * stride + d[None, :]
    return tl.load(at, mask=there[:, None] & (d < WIDTH)[None, :], other=0.0)


@triton.jit
def _put(pointer, x, row, there, stride, WIDTH: tl.constexpr, BLOCK_D: tl.constexpr):
    d = tl.arange(0, BLOCK_D)
    at = pointer + row.to(tl.int64)[:, None] * stride + d[None, :]
    tl.store(at, x.to(pointer.dtype.element_ty), mask=there[:, None] & (d < WIDTH)[None, :])


@triton.jit
def _listed(blocks, first, K, Tk, keys, S: tl.constexpr, BLOCK_K: tl.constexpr):
    """The places of a tile, the keys at these places, and whether they may be read."""
    p = first + tl.arange(0, BLOCK_K)
    j = tl.load(blocks + p // S, mask=p < K, other=0).to(tl.int64) * S + p % S
    there = (p < K) & (j < Tk)
    if keys is not None:
        there = there & (tl.load(keys + j, mask=there, other=0) != 0)
    return p, j, there


@triton.jit
def _scores(products, there, inside, allowed, bias, allowed_at, bias_at, place, scale):
    """Products as powers of two, -inf where nothing may be read; names with `_at` are offsets of the queries' masks.

    inside: where the masks have numbers. It must not depend on loaded numbers: Triton 3.6 would plan wider copies of
    the masks than it can then make.
    """
    s = products * (scale * LOG2E)
    if bias is not None:
        s += tl.load(bias + bias_at + place, mask=inside, other=0.0).to(tl.float32) * LOG2E
    if allowed is not None:
        there = there & (tl.load(allowed + allowed_at + place, mask=inside, other=0) != 0)
    return tl.where(there, s, float("-inf"))


@triton.jit
def _forward(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, blocks, allowed, keys, bias, q_by, k_by, v_by, out_by, blocks_by,
             allowed_by, bias_by, H, G, N, Tq, Tk, K, scale, R: tl.constexpr, S: tl.constexpr, WIDTH: tl.constexpr,
             PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    tiles = tl.cdiv(R, BLOCK_Q)
    r = tl.program_id(0) % tiles * BLOCK_Q + tl.arange(0, BLOCK_Q)
    n = (tl.program_id(0) // tiles % N).to(tl.int64)
    head = (tl.program_id(0) // tiles // N).to(tl.int64)
    b, h = head // H, head % H
    g = h // (H // G)
    i = n * R + r
    real = (r < R) & (i < Tq)
    q = _picked(q_ptr + b * q_by[0] + h * q_by[1], i, real, q_by[2], WIDTH, BLOCK_D)
    k_ptr += b * k_by[0] + g * k_by[1]
    v_ptr += b * v_by[0] + g * v_by[1]
    blocks += b * blocks_by[0] + h * blocks_by[1] + n * blocks_by[2]
    allowed_at, bias_at = r.to(tl.int64) * allowed_by[3], r.to(tl.int64) * bias_by[3]
    if allowed is not None:
        allowed += b * allowed_by[0] + h * allowed_by[1] + n * allowed_by[2]
    if bias is not None:
        bias += b * bias_by[0] + h * bias_by[1] + n * bias_by[2]
    if keys is not None:
        keys += b * Tk
    sums = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    total, top = tl.zeros([BLOCK_Q], tl.float32), tl.full([BLOCK_Q], float("-inf"), tl.float32)
    for first in tl.range(0, K, BLOCK_K):
        p, j, there = _listed(blocks, first, K, Tk, keys, S, BLOCK_K)
        k = _picked(k_ptr, j, there, k_by[2], WIDTH, BLOCK_D)
        s = _scores(_product(q, tl.trans(k), PRECISION), real[:, None] & there[None, :],
                    real[:, None] & (p < K)[None, :], allowed, bias, allowed_at[:, None], bias_at[:, None],
                    p[None, :], scale)  # fmt: skip
        higher = tl.maximum(top, tl.max(s, 1))
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf would be NaN
        share = tl.exp2(s - origin[:, None])
        shrink = tl.exp2(top - origin)
        total = total * shrink + tl.sum(share, 1)
        v = _picked(v_ptr, j, there, v_by[2], WIDTH, BLOCK_D)
        sums = sums * shrink[:, None] + _product(share.to(v.dtype), v, PRECISION)
        top = higher
    some = total > 0
    out = sums / tl.where(some, total, 1.0)[:, None]
    _put(out_ptr + b * out_by[0] + h * out_by[1], out, i, real, out_by[2], WIDTH, BLOCK_D)
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    tl.store(lse_ptr + head * Tq + i, lse, mask=real)


@triton.jit
def _backward_queries(q_ptr, k_ptr, v_ptr, out_ptr, d_out_ptr, lse_ptr, delta_ptr, d_q_ptr, blocks, allowed, keys, bias,
                      q_by, k_by, v_by, out_by, d_out_by, d_q_by, blocks_by, allowed_by, bias_by, H, G, N, Tq, Tk, K,
                      scale, R: tl.constexpr, S: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
                      BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """Gradients of the queries; for the next kernels also delta, the sum over a row of out times its gradient."""
    tiles = tl.cdiv(R, BLOCK_Q)
    r = tl.program_id(0) % tiles * BLOCK_Q + tl.arange(0, BLOCK_Q)
    n = (tl.program_id(0) // tiles % N).to(tl.int64)
    head = (tl.program_id(0) // tiles // N).to(tl.int64)
    b, h = head // H, head % H
    g = h // (H // G)
    i = n * R + r
    real = (r < R) & (i < Tq)
    q = _picked(q_ptr + b * q_by[0] + h * q_by[1], i, real, q_by[2], WIDTH, BLOCK_D)
    out = _picked(out_ptr + b * out_by[0] + h * out_by[1], i, real, out_by[2], WIDTH, BLOCK_D)
    d_out = _picked(d_out_ptr + b * d_out_by[0] + h * d_out_by[1], i, real, d_out_by[2], WIDTH, BLOCK_D)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(delta_ptr + head * Tq + i, delta, mask=real)
    lse = tl.load(lse_ptr + head * Tq + i, mask=real, other=float("-inf"))
    k_ptr += b * k_by[0] + g * k_by[1]
    v_ptr += b * v_by[0] + g * v_by[1]
    blocks += b * blocks_by[0] + h * blocks_by[1] + n * blocks_by[2]
    allowed_at, bias_at = r.to(tl.int64) * allowed_by[3], r.to(tl.int64) * bias_by[3]
    if allowed is not None:
        allowed += b * allowed_by[0] + h * allowed_by[1] + n * allowed_by[2]
    if bias is not None:
        bias += b * bias_by[0] + h * bias_by[1] + n * bias_by[2]
    if keys is not None:
        keys += b * Tk
    grads = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for first in tl.range(0, K, BLOCK_K):
        p, j, there = _listed(blocks, first, K, Tk, keys, S, BLOCK_K)
        k = _picked(k_ptr, j, there, k_by[2], WIDTH, BLOCK_D)
        v = _picked(v_ptr, j, there, v_by[2], WIDTH, BLOCK_D)
        s = _scores(_product(q, tl.trans(k), PRECISION), real[:, None] & there[None, :],
                    real[:, None] & (p < K)[None, :], allowed, bias, allowed_at[:, None], bias_at[:, None],
                    p[None, :], scale)  # fmt: skip
        ds = _weights(s, lse[:, None]) * (_product(d_out, tl.trans(v), PRECISION) - delta[:, None])
        grads += _product(ds.to(k.dtype), k, PRECISION)
    _put(d_q_ptr + b * d_q_by[0] + h * d_q_by[1], grads * scale, i, real, d_q_by[2], WIDTH, BLOCK_D)


@triton.jit
def _backward_keys(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_k_ptr, d_v_ptr, turned, ends, allowed, keys,
                   bias, q_by, k_by, v_by, d_out_by, d_k_by, d_v_by, turned_by, ends_by, allowed_by, bias_by, H, G, M,
                   Tq, Tk, listed, scale, R: tl.constexpr, S: tl.constexpr, WIDTH: tl.constexpr,
                   PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                   BLOCK_D: tl.constexpr):  # fmt: skip
    """turned: the places n * listed + e of each block m in the lists; those of m are turned[ends[m] : ends[m + 1]]."""
    tiles = tl.cdiv(S, BLOCK_K)
    c = tl.program_id(0) % tiles * BLOCK_K + tl.arange(0, BLOCK_K)
    m = (tl.program_id(0) // tiles % M).to(tl.int64)
    group = (tl.program_id(0) // tiles // M).to(tl.int64)
    b, g = group // G, group % G
    j = m * S + c
    real = (c < S) & (j < Tk)
    k = _picked(k_ptr + b * k_by[0] + g * k_by[1], j, real, k_by[2], WIDTH, BLOCK_D)
    v = _picked(v_ptr + b * v_by[0] + g * v_by[1], j, real, v_by[2], WIDTH, BLOCK_D)
    may = real
    if keys is not None:
        may = real & (tl.load(keys + b * Tk + j, mask=real, other=0) != 0)
    d_k, d_v = tl.zeros([BLOCK_K, BLOCK_D], tl.float32), tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    for h in range(g * (H // G), (g + 1) * (H // G)):
        places = turned + b * turned_by[0] + h * turned_by[1]
        end = ends + b * ends_by[0] + h * ends_by[1] + m
        low, high = tl.load(end) * R, tl.load(end + 1) * R
        q_of, d_out_of = q_ptr + b * q_by[0] + h * q_by[1], d_out_ptr + b * d_out_by[0] + h * d_out_by[1]
        mask, table = None, None
        if allowed is not None:
            mask = allowed + b * allowed_by[0] + h * allowed_by[1]
        if bias is not None:
            table = bias + b * bias_by[0] + h * bias_by[1]
        for first in tl.range(low, high, BLOCK_Q):
            u = first + tl.arange(0, BLOCK_Q)
            place = tl.load(places + u // R, mask=u < high, other=0)
            n, e, r = place // listed, place % listed, u % R
            i = n * R + r
            there = (u < high) & (i < Tq)
            q = _picked(q_of, i, there, q_by[2], WIDTH, BLOCK_D)
            d_out = _picked(d_out_of, i, there, d_out_by[2], WIDTH, BLOCK_D)
            lse = tl.load(lse_ptr + (b * H + h) * Tq + i, mask=there, other=float("-inf"))
            delta = tl.load(delta_ptr + (b * H + h) * Tq + i, mask=there, other=0.0)
            allowed_at = n * allowed_by[2] + r * allowed_by[3] + e * S
            bias_at = n * bias_by[2] + r * bias_by[3] + e * S
            # Keys by queries, so that the weights are the left factor of a product without transposition.
            s = _scores(_product(k, tl.trans(q), PRECISION), may[:, None] & there[None, :],
                        real[:, None] & (u < high)[None, :], mask, table, allowed_at[None, :], bias_at[None, :],
                        c[:, None], scale)  # fmt: skip
            share = _weights(s, lse[None, :])
            d_v += _product(share.to(d_out.dtype), d_out, PRECISION)
            ds = share * (_product(v, tl.trans(d_out), PRECISION) - delta[None, :])
            d_k += _product(ds.to(q.dtype), q, PRECISION)
    _put(d_k_ptr + b * d_k_by[0] + g * d_k_by[1], d_k * scale, j, real, d_k_by[2], WIDTH, BLOCK_D)
    _put(d_v_ptr + b * d_v_by[0] + g * d_v_by[1], d_v, j, real, d_v_by[2], WIDTH, BLOCK_D)


@triton.jit
def _backward_bias(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_bias_ptr, blocks, allowed, keys, bias, q_by,
                   k_by, v_by, d_out_by, blocks_by, allowed_by, bias_by, sizes, times, H, G, Tq, Tk, K, scale,
                   R: tl.constexpr, S: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
                   ONE_ROW: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                   BLOCK_D: tl.constexpr):  # fmt: skip
    """Sum the gradient of one tile of a bias, [sizes.., K]. times: how many sequences, heads, blocks and row tiles
    share it.
    """
    rest = tl.program_id(0)
    p_first, rest = rest % tl.cdiv(K, BLOCK_K) * BLOCK_K, rest // tl.cdiv(K, BLOCK_K)
    tiles = tl.cdiv(sizes[3], BLOCK_Q)
    own_tile, rest = rest % tiles, rest // tiles
    own = rest.to(tl.int64)  # an index into sizes[0] * sizes[1] * sizes[2]
    own_n, own_h, own_b = own % sizes[2], own // sizes[2] % sizes[1], own // sizes[2] // sizes[1]
    grads = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for t in range(times[0] * times[1] * times[2] * times[3]):
        b, rest = own_b + t % times[0], t // times[0]
        h, rest = own_h + rest % times[1], rest // times[1]
        n = own_n + rest % times[2]
        r = (own_tile + rest // times[2]) * BLOCK_Q + tl.arange(0, BLOCK_Q)
        g = h // (H // G)
        i = n * R + r
        real = (r < R) & (i < Tq)
        table, mask, padded = bias + b * bias_by[0] + h * bias_by[1] + n * bias_by[2], allowed, keys
        if allowed is not None:
            mask = allowed + b * allowed_by[0] + h * allowed_by[1] + n * allowed_by[2]
        if keys is not None:
            padded = keys + b * Tk
        list_ = blocks + b * blocks_by[0] + h * blocks_by[1] + n * blocks_by[2]
        p, j, there = _listed(list_, p_first, K, Tk, padded, S, BLOCK_K)
        q = _picked(q_ptr + b * q_by[0] + h * q_by[1], i, real, q_by[2], WIDTH, BLOCK_D)
        k = _picked(k_ptr + b * k_by[0] + g * k_by[1], j, there, k_by[2], WIDTH, BLOCK_D)
        v = _picked(v_ptr + b * v_by[0] + g * v_by[1], j, there, v_by[2], WIDTH, BLOCK_D)
        d_out = _picked(d_out_ptr + b * d_out_by[0] + h * d_out_by[1], i, real, d_out_by[2], WIDTH, BLOCK_D)
        allowed_at, bias_at = r.to(tl.int64) * allowed_by[3], r.to(tl.int64) * bias_by[3]
        s = _scores(_product(q, tl.trans(k), PRECISION), real[:, None] & there[None, :],
                    real[:, None] & (p < K)[None, :], mask, table, allowed_at[:, None], bias_at[:, None],
                    p[None, :], scale)  # fmt: skip
        lse = tl.load(lse_ptr + (b * H + h) * Tq + i, mask=real, other=float("-inf"))
        delta = tl.load(delta_ptr + (b * H + h) * Tq + i, mask=real, other=0.0)
        grads += _weights(s, lse[:, None]) * (_product(d_out, tl.trans(v), PRECISION) - delta[:, None])
    p = p_first + tl.arange(0, BLOCK_K)
    at = d_bias_ptr + own * sizes[3] * K
    if ONE_ROW:
        tl.store(at + p, tl.sum(grads, 0).to(d_bias_ptr.dtype.element_ty), mask=p < K)
    else:
        r = (own_tile * BLOCK_Q + tl.arange(0, BLOCK_Q)).to(tl.int64)
        inside = (r < R)[:, None] & (p < K)[None, :]
        tl.store(at + r[:, None] * K + p[None, :], grads.to(d_bias_ptr.dtype.element_ty), mask=inside)
