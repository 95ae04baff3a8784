"""Parts of attention in tiles: rows of a tensor, scores of a tile, dropout by a seed, the place of a tile in its
sequence.

B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head. Query i is at position i + Tk -
Tq and reads the keys from `left` before it to `right` after it.
"""

# mypy: allow-incomplete-defs

import math

import triton
import triton.language as tl

from kernels.attention.weight_dropout import ALL, FACTORS, GOLDEN

LOG2E = tl.constexpr(math.log2(math.e))
LN2 = tl.constexpr(math.log(2))
MIX_A, MIX_B = (tl.constexpr(factor) for factor in FACTORS)
SPREAD = tl.constexpr(GOLDEN)
EVERY = tl.constexpr(ALL)


@triton.jit
def _product(a, b, PRECISION: tl.constexpr):
    if PRECISION == "widened":  # for the interpreter, which multiplies bfloat16 as integers
        product = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        product = tl.dot(a, b, input_precision=PRECISION)
    return product


@triton.jit
def _rows(pointer, start, stride, length, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] from row `start`; zeros beyond `length` and WIDTH."""
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    # int64: a row times its stride overflows 32 bits on long batches.
    at = pointer + tl.cast(start, tl.int64) * stride + r.to(tl.int64)[:, None] * stride + c[None, :]
    return tl.load(at, mask=(start + r < length)[:, None] & (c < WIDTH)[None, :], other=0.0)


@triton.jit
def _store_rows(pointer, x, start, stride, length, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = pointer + tl.cast(start, tl.int64) * stride + r.to(tl.int64)[:, None] * stride + c[None, :]
    tl.store(at, x.to(pointer.dtype.element_ty), mask=(start + r < length)[:, None] & (c < WIDTH)[None, :])


@triton.jit
def _span(start, length, past, first, last, left, right, LEFT: tl.constexpr, RIGHT: tl.constexpr,
          ROWS: tl.constexpr, STEP: tl.constexpr):  # fmt: skip
    """The part of `first` to `last` that ROWS rows from `start` read, in steps: (begin, begin of full tiles, their end,
    end).
    """
    end = tl.minimum(start + ROWS, length)
    low, high = first, last
    if LEFT:
        low = tl.maximum(low, start + past - left)
    if RIGHT:
        high = tl.minimum(high, end + past + right)
    low = low // STEP * STEP
    high = tl.maximum(high, low)
    whole_low, whole_high = low, high
    if LEFT:
        whole_low = tl.maximum(low, (tl.maximum(end - 1 + past - left, 0) + STEP - 1) // STEP * STEP)
    if RIGHT:
        whole_high = tl.minimum(high, tl.maximum(start + past + right + 1, 0))
    return low, whole_low, tl.maximum(whole_high // STEP * STEP, whole_low), high


@triton.jit
def _scores(products, i, j, past, keys, bias, bias_stride, slope, queries, length, left, right, scale,
            LEFT: tl.constexpr, RIGHT: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """Products of queries i and keys j as powers of two, -inf where nothing may be read.

    i and j are along different axes of a tile, in either order. keys, bias, slope are those of this head.
    """
    s = products * (scale * LOG2E)
    if bias is not None:
        at = bias + i.to(tl.int64) * bias_stride + j
        s += tl.load(at, mask=(i < queries) & (j < length), other=0.0).to(tl.float32) * LOG2E
    if slope is not None:
        s -= slope * LOG2E * tl.abs(i + past - j).to(tl.float32)
    if MASKED:
        allowed = (j < length) & (i >= 0)
        if LEFT:
            allowed = allowed & (j - i - past >= -left)
        if RIGHT:
            allowed = allowed & (j - i - past <= right)
        s = tl.where(allowed, s, float("-inf"))
    if keys is not None:
        s = tl.where(tl.load(keys + j, mask=j < length, other=0) != 0, s, float("-inf"))
    return s


@triton.jit
def _weights(s, lse):
    """The weights of scores; zeros in a row without any key. lse is along the axis of the queries."""
    empty = lse == float("-inf")
    return tl.where(empty, 0.0, tl.exp2(s - tl.where(empty, 0.0, lse * LOG2E)))


@triton.jit
def _sequence(packing, tiles, tile, start, Tq, Tk):
    """The start of a program's rows in their sequence, and the sequence: first query, first key, how many of each.

    packing: [5, tiles], these numbers for each tile of a packed batch; None if all sequences have Tq queries and Tk
    keys.
    """
    query, key = 0, 0
    if packing is not None:
        packing += tile
        start = tl.load(packing)
        query, key = tl.load(packing + tiles).to(tl.int64), tl.load(packing + 2 * tiles).to(tl.int64)
        Tq, Tk = tl.load(packing + 3 * tiles), tl.load(packing + 4 * tiles)
    return start, query, key, Tq, Tk


@triton.jit
def _mixed(x):
    x = (x ^ (x >> 16)) * MIX_A
    x = (x ^ (x >> 13)) * MIX_B
    return x ^ (x >> 16)


@triton.jit
def _kept(seed, rows, j, dropped):
    """The same as `weight_dropout.kept` for rows (int64) and keys j, which are along different axes of a tile."""
    s = tl.load(seed)
    words = _mixed((rows ^ s).to(tl.uint32)) + (rows >> 32).to(tl.uint32)
    numbers = _mixed(_mixed(words ^ (s >> 32).to(tl.uint32)) + j.to(tl.uint32) * SPREAD) >> 8
    share = tl.cast(-dropped + EVERY, tl.float32) / EVERY
    return tl.where(numbers.to(tl.int32) >= dropped, 1.0 / tl.maximum(share, 1e-9), 0.0)
