"""Exact attention in tiles: neither forward nor backward holds a matrix of scores.

Dao et al. 2022, "FlashAttention", https://arxiv.org/abs/2205.14135, algorithms 1 and 4, with the running maximum of
Milakov & Gimelshein 2018, https://arxiv.org/abs/1805.02867. B batch, H query heads, G key and value heads, Tq queries,
Tk keys, D width of one head. Query i is at position i + Tk - Tq and reads the keys from `left` before it to `right`
after it. A row without any key gives zeros, and -inf for the logarithm of its sum (LSE).

Tiles entirely inside the range that may be read need no mask; tiles entirely outside are skipped. No sum depends on the
order in which programs run: the gradient of a key is summed over the queries by one program.
"""

# mypy: allow-incomplete-defs

import triton
import triton.language as tl

from kernels.attention.tiles_triton import (
    LN2,
    _kept,
    _product,
    _rows,
    _scores,
    _sequence,
    _span,
    _store_rows,
    _weights,
)


@triton.jit
def _read(sums, total, top, q, k_ptr, v_ptr, k_stride, v_stride, i, past, keys, bias, bias_stride, slope, seed, rows,
          queries, length, left, right, scale, dropped, low, high, WIDTH: tl.constexpr, LEFT: tl.constexpr,
          RIGHT: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr, BLOCK_K: tl.constexpr,
          BLOCK_D: tl.constexpr):  # fmt: skip
    """Adds the keys from low to high to the running sums [BLOCK_Q, BLOCK_D], totals and maxima [BLOCK_Q]."""
    for start in tl.range(low, high, BLOCK_K):
        k = _rows(k_ptr, start, k_stride, length, WIDTH, BLOCK_K, BLOCK_D)
        j = start + tl.arange(0, BLOCK_K)
        s = _scores(_product(q, tl.trans(k), PRECISION), i[:, None], j[None, :], past, keys, bias,
                    bias_stride, slope, queries, length, left, right, scale, LEFT, RIGHT, MASKED)  # fmt: skip
        higher = tl.maximum(top, tl.max(s, 1))
        origin = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf would be NaN
        p = tl.exp2(s - origin[:, None])
        shrink = tl.exp2(top - origin)
        total = total * shrink + tl.sum(p, 1)
        v = _rows(v_ptr, start, v_stride, length, WIDTH, BLOCK_K, BLOCK_D)
        if seed is not None:
            p *= _kept(seed, (rows + i)[:, None], j[None, :], dropped)
        sums = sums * shrink[:, None] + _product(p.to(v.dtype), v, PRECISION)
        top = higher
    return sums, total, top


@triton.jit
def _forward(q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, keys, bounds, bias, slopes, seed, packing, q_by, k_by, v_by, out_by,
             bias_by, tiles, H, G, Tq, Tk, left, right, scale, dropped, WIDTH: tl.constexpr, LEFT: tl.constexpr,
             RIGHT: tl.constexpr, PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
             BLOCK_D: tl.constexpr):  # fmt: skip
    tile, head = tl.program_id(0) % tiles, (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    g, rows = h // (H // G), head * Tq
    # The last queries of a causal pass read most keys: start them first, so that nothing waits for them at the end.
    start, query, key, Tq, Tk = _sequence(packing, tiles, tile, (tiles - 1 - tile) * BLOCK_Q, Tq, Tk)
    past, rows = Tk - Tq, rows + query
    i = start + tl.arange(0, BLOCK_Q)
    q = _rows(q_ptr + b * q_by[0] + h * q_by[1] + query * q_by[2], start, q_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
    k_ptr += b * k_by[0] + g * k_by[1] + key * k_by[2]
    v_ptr += b * v_by[0] + g * v_by[1] + key * v_by[2]
    slope, first, last = None, 0, Tk
    if keys is not None:
        keys += b * Tk
        first, last = tl.load(bounds + 2 * b), tl.load(bounds + 2 * b + 1)
    if bias is not None:
        bias += h * bias_by[0]
    if slopes is not None:
        slope = tl.load(slopes + h)
    low, whole_low, whole_high, high = _span(start, Tq, past, first, last, left, right, LEFT, RIGHT, BLOCK_Q, BLOCK_K)
    sums = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    total, top = tl.zeros([BLOCK_Q], tl.float32), tl.full([BLOCK_Q], float("-inf"), tl.float32)
    if LEFT:
        sums, total, top = _read(
            sums, total, top, q, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed, rows,
            Tq, Tk, left, right, scale, dropped, low, tl.minimum(whole_low, high), WIDTH, LEFT, RIGHT, True, PRECISION,
            BLOCK_K, BLOCK_D,
        )  # fmt: skip
    sums, total, top = _read(
        sums, total, top, q, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed, rows,
        Tq, Tk, left, right, scale, dropped, whole_low, whole_high, WIDTH, LEFT, RIGHT, False, PRECISION, BLOCK_K,
        BLOCK_D,
    )  # fmt: skip
    sums, total, top = _read(
        sums, total, top, q, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed, rows,
        Tq, Tk, left, right, scale, dropped, whole_high, high, WIDTH, LEFT, RIGHT, True, PRECISION, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    some = total > 0
    out = sums / tl.where(some, total, 1.0)[:, None]
    out_ptr += b * out_by[0] + h * out_by[1] + query * out_by[2]
    _store_rows(out_ptr, out, start, out_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
    lse = tl.where(some, (top + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    tl.store(lse_ptr + rows + i, lse, mask=i < Tq)


@triton.jit
def _back_to_queries(grads, q, d_out, lse, delta, k_ptr, v_ptr, k_stride, v_stride, i, past, keys, bias, bias_stride,
                     slope, seed, rows, queries, length, left, right, scale, dropped, low, high, WIDTH: tl.constexpr,
                     LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
                     BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    for start in tl.range(low, high, BLOCK_K):
        k = _rows(k_ptr, start, k_stride, length, WIDTH, BLOCK_K, BLOCK_D)
        v = _rows(v_ptr, start, v_stride, length, WIDTH, BLOCK_K, BLOCK_D)
        j = start + tl.arange(0, BLOCK_K)
        s = _scores(_product(q, tl.trans(k), PRECISION), i[:, None], j[None, :], past, keys, bias,
                    bias_stride, slope, queries, length, left, right, scale, LEFT, RIGHT, MASKED)  # fmt: skip
        d_weights = _product(d_out, tl.trans(v), PRECISION)
        if seed is not None:
            d_weights *= _kept(seed, (rows + i)[:, None], j[None, :], dropped)
        ds = _weights(s, lse[:, None]) * (d_weights - delta[:, None])
        grads += _product(ds.to(k.dtype), k, PRECISION)
    return grads


@triton.jit
def _backward_queries(q_ptr, k_ptr, v_ptr, out_ptr, d_out_ptr, lse_ptr, delta_ptr, d_q_ptr, keys, bounds, bias, slopes,
                      seed, packing, q_by, k_by, v_by, out_by, d_out_by, d_q_by, bias_by, tiles, H, G, Tq, Tk, left,
                      right, scale, dropped, WIDTH: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
                      PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                      BLOCK_D: tl.constexpr):  # fmt: skip
    """Gradients of the queries; for the next kernels also delta, the sum over a row of out times its gradient."""
    tile, head = tl.program_id(0) % tiles, (tl.program_id(0) // tiles).to(tl.int64)
    b, h = head // H, head % H
    g, rows = h // (H // G), head * Tq
    start, query, key, Tq, Tk = _sequence(packing, tiles, tile, (tiles - 1 - tile) * BLOCK_Q, Tq, Tk)
    past, rows = Tk - Tq, rows + query
    i = start + tl.arange(0, BLOCK_Q)
    q_ptr += b * q_by[0] + h * q_by[1] + query * q_by[2]
    out_ptr += b * out_by[0] + h * out_by[1] + query * out_by[2]
    d_out_ptr += b * d_out_by[0] + h * d_out_by[1] + query * d_out_by[2]
    q = _rows(q_ptr, start, q_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
    out = _rows(out_ptr, start, out_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
    d_out = _rows(d_out_ptr, start, d_out_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(delta_ptr + rows + i, delta, mask=i < Tq)
    lse = tl.load(lse_ptr + rows + i, mask=i < Tq, other=float("-inf"))
    k_ptr += b * k_by[0] + g * k_by[1] + key * k_by[2]
    v_ptr += b * v_by[0] + g * v_by[1] + key * v_by[2]
    slope, first, last = None, 0, Tk
    if keys is not None:
        keys += b * Tk
        first, last = tl.load(bounds + 2 * b), tl.load(bounds + 2 * b + 1)
    if bias is not None:
        bias += h * bias_by[0]
    if slopes is not None:
        slope = tl.load(slopes + h)
    low, whole_low, whole_high, high = _span(start, Tq, past, first, last, left, right, LEFT, RIGHT, BLOCK_Q, BLOCK_K)
    grads = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    if LEFT:
        grads = _back_to_queries(
            grads, q, d_out, lse, delta, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed,
            rows, Tq, Tk, left, right, scale, dropped, low, tl.minimum(whole_low, high), WIDTH, LEFT, RIGHT, True,
            PRECISION, BLOCK_K, BLOCK_D,
        )  # fmt: skip
    grads = _back_to_queries(
        grads, q, d_out, lse, delta, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed, rows,
        Tq, Tk, left, right, scale, dropped, whole_low, whole_high, WIDTH, LEFT, RIGHT, False, PRECISION, BLOCK_K,
        BLOCK_D,
    )  # fmt: skip
    grads = _back_to_queries(
        grads, q, d_out, lse, delta, k_ptr, v_ptr, k_by[2], v_by[2], i, past, keys, bias, bias_by[1], slope, seed, rows,
        Tq, Tk, left, right, scale, dropped, whole_high, high, WIDTH, LEFT, RIGHT, True, PRECISION, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    d_q_ptr += b * d_q_by[0] + h * d_q_by[1] + query * d_q_by[2]
    _store_rows(d_q_ptr, grads * scale, start, d_q_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)


@triton.jit
def _back_to_keys(d_k, d_v, k, v, q_ptr, d_out_ptr, lse_ptr, delta_ptr, q_stride, d_out_stride, j, past, keys, bias,
                  bias_stride, slope, seed, rows, queries, length, left, right, scale, dropped, low, high,
                  WIDTH: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr,
                  PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    for start in tl.range(low, high, BLOCK_Q):
        i = start + tl.arange(0, BLOCK_Q)
        q = _rows(q_ptr, start, q_stride, queries, WIDTH, BLOCK_Q, BLOCK_D)
        d_out = _rows(d_out_ptr, start, d_out_stride, queries, WIDTH, BLOCK_Q, BLOCK_D)
        lse = tl.load(lse_ptr + i, mask=i < queries, other=float("-inf"))
        delta = tl.load(delta_ptr + i, mask=i < queries, other=0.0)
        # Keys by queries, so that the weights are the left factor of a product without transposition.
        s = _scores(_product(k, tl.trans(q), PRECISION), i[None, :], j[:, None], past, keys, bias,
                    bias_stride, slope, queries, length, left, right, scale, LEFT, RIGHT, MASKED)  # fmt: skip
        p = _weights(s, lse[None, :])
        read, kept = p, None
        if seed is not None:
            kept = _kept(seed, (rows + i)[None, :], j[:, None], dropped)
            read = p * kept
        d_v += _product(read.to(d_out.dtype), d_out, PRECISION)
        d_weights = _product(v, tl.trans(d_out), PRECISION)
        if kept is not None:
            d_weights *= kept
        ds = p * (d_weights - delta[None, :])
        d_k += _product(ds.to(q.dtype), q, PRECISION)
    return d_k, d_v


@triton.jit
def _backward_keys(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_k_ptr, d_v_ptr, keys, bounds, bias, slopes,
                   seed, packing, q_by, k_by, v_by, d_out_by, d_k_by, d_v_by, bias_by, tiles, H, G, Tq, Tk, left, right,
                   scale, dropped, WIDTH: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
                   PRECISION: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
                   BLOCK_D: tl.constexpr):  # fmt: skip
    tile, group = tl.program_id(0) % tiles, (tl.program_id(0) // tiles).to(tl.int64)
    b, g, whole = group // G, group % G, Tq
    start, query, key, Tq, Tk = _sequence(packing, tiles, tile, tile * BLOCK_K, Tq, Tk)
    past = Tk - Tq
    j = start + tl.arange(0, BLOCK_K)
    k_ptr += b * k_by[0] + g * k_by[1] + key * k_by[2]
    v_ptr += b * v_by[0] + g * v_by[1] + key * v_by[2]
    k = _rows(k_ptr, start, k_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)
    v = _rows(v_ptr, start, v_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)
    # The queries of a tile of keys are found as the keys of a tile of queries are, with both sides exchanged.
    low, whole_low, whole_high, high = _span(start, Tk, -past, 0, Tq, right, left, RIGHT, LEFT, BLOCK_K, BLOCK_Q)
    if keys is not None:
        keys += b * Tk
        unread = (start >= tl.load(bounds + 2 * b + 1)) | (start + BLOCK_K <= tl.load(bounds + 2 * b))
        whole_low, whole_high = tl.where(unread, low, whole_low), tl.where(unread, low, whole_high)
        high = tl.where(unread, low, high)
    d_k, d_v = tl.zeros([BLOCK_K, BLOCK_D], tl.float32), tl.zeros([BLOCK_K, BLOCK_D], tl.float32)
    for h in range(g * (H // G), (g + 1) * (H // G)):
        rows = (b * H + h) * whole + query
        q = q_ptr + b * q_by[0] + h * q_by[1] + query * q_by[2]
        d_out = d_out_ptr + b * d_out_by[0] + h * d_out_by[1] + query * d_out_by[2]
        table, slope = None, None
        if bias is not None:
            table = bias + h * bias_by[0]
        if slopes is not None:
            slope = tl.load(slopes + h)
        if RIGHT:
            d_k, d_v = _back_to_keys(
                d_k, d_v, k, v, q, d_out, lse_ptr + rows, delta_ptr + rows, q_by[2], d_out_by[2], j, past, keys, table,
                bias_by[1], slope, seed, rows, Tq, Tk, left, right, scale, dropped, low,
                tl.minimum(whole_low, high), WIDTH, LEFT, RIGHT, True, PRECISION, BLOCK_Q, BLOCK_D,
            )  # fmt: skip
        d_k, d_v = _back_to_keys(
            d_k, d_v, k, v, q, d_out, lse_ptr + rows, delta_ptr + rows, q_by[2], d_out_by[2], j, past, keys, table,
            bias_by[1], slope, seed, rows, Tq, Tk, left, right, scale, dropped, whole_low, whole_high, WIDTH,
            LEFT, RIGHT, False, PRECISION, BLOCK_Q, BLOCK_D,
        )  # fmt: skip
        d_k, d_v = _back_to_keys(
            d_k, d_v, k, v, q, d_out, lse_ptr + rows, delta_ptr + rows, q_by[2], d_out_by[2], j, past, keys, table,
            bias_by[1], slope, seed, rows, Tq, Tk, left, right, scale, dropped, whole_high, high, WIDTH,
            LEFT, RIGHT, True, PRECISION, BLOCK_Q, BLOCK_D,
        )  # fmt: skip
    d_k_ptr += b * d_k_by[0] + g * d_k_by[1] + key * d_k_by[2]
    d_v_ptr += b * d_v_by[0] + g * d_v_by[1] + key * d_v_by[2]
    _store_rows(d_k_ptr, d_k * scale, start, d_k_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)
    _store_rows(d_v_ptr, d_v, start, d_v_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)


@triton.jit
def _backward_bias(q_ptr, k_ptr, v_ptr, d_out_ptr, lse_ptr, delta_ptr, d_bias_ptr, keys, bias, slopes, seed, q_by, k_by,
                   v_by, d_out_by, bias_by, B, H, G, Tq, Tk, left, right, scale, dropped, first, last,
                   WIDTH: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, PRECISION: tl.constexpr,
                   BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """Sums one tile of one head's bias over the batch; d_bias: [H, last - first, Tk], for those queries."""
    across, tiles = tl.cdiv(Tk, BLOCK_K), tl.cdiv(last - first, BLOCK_Q)
    start, row = tl.program_id(0) % across * BLOCK_K, first + tl.program_id(0) // across % tiles * BLOCK_Q
    h = (tl.program_id(0) // across // tiles).to(tl.int64)
    g, past = h // (H // G), Tk - Tq
    i, j = row + tl.arange(0, BLOCK_Q), start + tl.arange(0, BLOCK_K)
    slope, real, table = None, keys, bias + h * bias_by[0]
    if slopes is not None:
        slope = tl.load(slopes + h)
    grads = tl.zeros([BLOCK_Q, BLOCK_K], tl.float32)
    for n in range(B):
        b = tl.cast(n, tl.int64)
        rows = (b * H + h) * Tq
        q = _rows(q_ptr + b * q_by[0] + h * q_by[1], row, q_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
        k = _rows(k_ptr + b * k_by[0] + g * k_by[1], start, k_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)
        v = _rows(v_ptr + b * v_by[0] + g * v_by[1], start, v_by[2], Tk, WIDTH, BLOCK_K, BLOCK_D)
        d_out = _rows(d_out_ptr + b * d_out_by[0] + h * d_out_by[1], row, d_out_by[2], Tq, WIDTH, BLOCK_Q, BLOCK_D)
        if keys is not None:
            real = keys + b * Tk
        s = _scores(_product(q, tl.trans(k), PRECISION), i[:, None], j[None, :], past, real, table,
                    bias_by[1], slope, Tq, Tk, left, right, scale, LEFT, RIGHT, True)  # fmt: skip
        lse = tl.load(lse_ptr + rows + i, mask=i < Tq, other=float("-inf"))
        delta = tl.load(delta_ptr + rows + i, mask=i < Tq, other=0.0)
        d_weights = _product(d_out, tl.trans(v), PRECISION)
        if seed is not None:
            d_weights *= _kept(seed, (rows + i)[:, None], j[None, :], dropped)
        grads += _weights(s, lse[:, None]) * (d_weights - delta[:, None])
    at = d_bias_ptr + (h * (last - first) + i - first)[:, None] * Tk + j[None, :]
    tl.store(at, grads.to(d_bias_ptr.dtype.element_ty), mask=(i < last)[:, None] & (j < Tk)[None, :])
