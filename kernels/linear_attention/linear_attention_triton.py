"""Causal linear attention in chunks, plain or decayed, forward and backward.

See `kernels.linear_attention.linear_attention`. Hua et al. 2022, https://arxiv.org/abs/2202.10447, section 3.2, and
Yang et al. 2024, "Gated Linear Attention", https://arxiv.org/abs/2312.06635, section 4: one pass along the chunks
stores the state before each, then all chunks are computed in parallel. With l the running sum of log decay in a chunk,
W_ij = exp(l_i - l_j) for j <= i and S the state before it: out = (q k^T * W) v + exp(l) q S. The gradients are sums of
the same form, with states that run backwards.

B batch, H heads, T time, F features, D width of a value, N chunks of CHUNK positions, E columns of a state: D, or D + 1
with a normaliser (the sum of the keys).
"""

# mypy: allow-incomplete-defs

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.tiles_triton import _product


@triton.jit
def _tile(pointer, row, column, stride, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """[ROWS, COLUMNS] from (row, column); zeros beyond rows and columns."""
    r, c = tl.cast(row, tl.int64) + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    return tl.load(
        pointer + r[:, None] * stride + c[None, :], mask=(r < rows)[:, None] & (c < columns)[None, :], other=0.0
    )


@triton.jit
def _store(pointer, x, row, column, stride, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.cast(row, tl.int64) + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    tl.store(pointer + r[:, None] * stride + c[None, :], x.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def _states(x_ptr, y_ptr, norm_ptr, level_ptr, first_ptr, states_ptr, last_ptr, x_by, y_by, H, T, N, F, D, E,
            BACKWARDS: tl.constexpr, NORMALISED: tl.constexpr, PRECISION: tl.constexpr, CHUNK: tl.constexpr,
            BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """Store the state [F, E] before each chunk, from the first chunk to the last. x are keys, y are values.

    BACKWARDS: store the gradient of the state after each chunk, from the last chunk to the first. x are then queries,
    y the gradients of the outputs, and norm the gradients of the normalisers.
    """
    f_tiles, d_tiles = tl.cdiv(F, BLOCK_F), tl.cdiv(D, BLOCK_D)
    head = (tl.program_id(0) // d_tiles // f_tiles).to(tl.int64)
    f0, d0 = tl.program_id(0) // d_tiles % f_tiles * BLOCK_F, tl.program_id(0) % d_tiles * BLOCK_D
    x_ptr += head // H * x_by[0] + head % H * x_by[1]
    y_ptr += head // H * y_by[0] + head % H * y_by[1]
    f, c = f0 + tl.arange(0, BLOCK_F), tl.arange(0, CHUNK)
    column = (f < F) & (d0 == 0)  # the programs that keep the sum of the keys
    state, z = tl.zeros([BLOCK_F, BLOCK_D], tl.float32), tl.zeros([BLOCK_F], tl.float32)
    if first_ptr is not None:
        state += _tile(first_ptr + head * F * E, f0, d0, E, F, D, BLOCK_F, BLOCK_D)
        if NORMALISED:
            z += tl.load(first_ptr + head * F * E + f.to(tl.int64) * E + D, mask=column, other=0.0)
    for step in range(N):
        n = step
        if BACKWARDS:
            n = N - 1 - step
        kept = states_ptr + (head * N + n) * F * E
        _store(kept, state, f0, d0, E, F, D, BLOCK_F, BLOCK_D)
        x = _tile(x_ptr, n * CHUNK, f0, x_by[2], T, F, CHUNK, BLOCK_F)
        y = _tile(y_ptr, n * CHUNK, d0, y_by[2], T, D, CHUNK, BLOCK_D)
        if NORMALISED:
            tl.store(kept + f.to(tl.int64) * E + D, z, mask=column)
        if level_ptr is not None:
            levels = level_ptr + (head * N + n) * CHUNK
            level, end = tl.load(levels + c), tl.load(levels + CHUNK - 1)
            if BACKWARDS:
                x = (x * tl.exp(level)[:, None]).to(x.dtype)
            else:
                x = (x * tl.exp(end - level)[:, None]).to(x.dtype)
            state *= tl.exp(end)
            z *= tl.exp(end)
        state += _product(tl.trans(x), y, PRECISION)
        if NORMALISED:
            if BACKWARDS:
                at = tl.cast(n, tl.int64) * CHUNK + c
                z += tl.sum(x.to(tl.float32) * tl.load(norm_ptr + head * T + at, mask=at < T, other=0.0)[:, None], 0)
            else:
                z += tl.sum(x.to(tl.float32), 0)
    _store(last_ptr + head * F * E, state, f0, d0, E, F, D, BLOCK_F, BLOCK_D)
    if NORMALISED:
        tl.store(last_ptr + head * F * E + f.to(tl.int64) * E + D, z, mask=column)


@triton.jit
def _shares(levels, CHUNK: tl.constexpr):
    """W: the share of key j that remains at query i; zero for later keys."""
    c = tl.arange(0, CHUNK)
    past = c[:, None] >= c[None, :]
    if levels is not None:
        level = tl.load(levels + c)
        w = tl.exp(tl.where(past, level[:, None] - level[None, :], float("-inf")))
    else:
        w = past.to(tl.float32)
    return w


@triton.jit
def _read(q_ptr, k_ptr, v_ptr, level_ptr, states_ptr, out_ptr, norm_ptr, q_by, k_by, v_by, out_by, H, T, N, F, D, E,
          EPS, NORMALISED: tl.constexpr, PRECISION: tl.constexpr, CHUNK: tl.constexpr,
          BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """What the queries of one chunk read, divided by their normalisers."""
    d_tiles = tl.cdiv(D, BLOCK_D)
    head = (tl.program_id(0) // d_tiles // N).to(tl.int64)
    n, d0 = tl.program_id(0) // d_tiles % N, tl.program_id(0) % d_tiles * BLOCK_D
    q_ptr += head // H * q_by[0] + head % H * q_by[1]
    k_ptr += head // H * k_by[0] + head % H * k_by[1]
    state_ptr = states_ptr + (head * N + n) * F * E
    levels = None
    if level_ptr is not None:
        levels = level_ptr + (head * N + n) * CHUNK
    scores, far = tl.zeros([CHUNK, CHUNK], tl.float32), tl.zeros([CHUNK, BLOCK_D], tl.float32)
    norm = tl.zeros([CHUNK], tl.float32)
    for f0 in range(0, F, BLOCK_F):
        q = _tile(q_ptr, n * CHUNK, f0, q_by[2], T, F, CHUNK, BLOCK_F)
        k = _tile(k_ptr, n * CHUNK, f0, k_by[2], T, F, CHUNK, BLOCK_F)
        state = _tile(state_ptr, f0, d0, E, F, D, BLOCK_F, BLOCK_D)
        scores += _product(q, tl.trans(k), PRECISION)
        far += _product(q, state.to(q.dtype), PRECISION)
        if NORMALISED:
            f = f0 + tl.arange(0, BLOCK_F)
            z = tl.load(state_ptr + f.to(tl.int64) * E + D, mask=f < F, other=0.0)
            norm += tl.sum(q.to(tl.float32) * z[None, :], 1)
    c = tl.arange(0, CHUNK)
    if levels is not None:
        left = tl.exp(tl.load(levels + c))
        far *= left[:, None]
        norm *= left
    v = _tile(v_ptr + head // H * v_by[0] + head % H * v_by[1], n * CHUNK, d0, v_by[2], T, D, CHUNK, BLOCK_D)
    weights = (scores * _shares(levels, CHUNK)).to(v.dtype)
    out = far + _product(weights, v, PRECISION)
    if NORMALISED:
        # Rounded as for the product, so that a mean of equal values is that value.
        norm += tl.sum(weights.to(tl.float32), 1) + EPS
        out = out / norm[:, None]
        at = tl.cast(n, tl.int64) * CHUNK + c
        tl.store(norm_ptr + head * T + at, norm, mask=(at < T) & (d0 == 0))
    out_ptr += head // H * out_by[0] + head % H * out_by[1]
    _store(out_ptr, out, n * CHUNK, d0, out_by[2], T, D, CHUNK, BLOCK_D)


@triton.jit
def _gradients(q_ptr, k_ptr, v_ptr, d_out_ptr, d_norm_ptr, level_ptr, states_ptr, d_states_ptr, d_q_ptr, d_k_ptr,
               d_v_ptr, q_by, k_by, v_by, d_out_by, H, T, N, F, D, E, NORMALISED: tl.constexpr, PRECISION: tl.constexpr,
               CHUNK: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr):  # fmt: skip
    """Gradients of one chunk's queries, keys and values; d_q, d_k, d_v are contiguous."""
    head, n = (tl.program_id(0) // N).to(tl.int64), tl.program_id(0) % N
    row = n * CHUNK
    q_ptr += head // H * q_by[0] + head % H * q_by[1]
    k_ptr += head // H * k_by[0] + head % H * k_by[1]
    v_ptr += head // H * v_by[0] + head % H * v_by[1]
    d_out_ptr += head // H * d_out_by[0] + head % H * d_out_by[1]
    state_ptr, d_state_ptr = states_ptr + (head * N + n) * F * E, d_states_ptr + (head * N + n) * F * E
    c = tl.arange(0, CHUNK)
    at = tl.cast(row, tl.int64) + c
    levels = None
    left, later = tl.full([CHUNK], 1.0, tl.float32), tl.full([CHUNK], 1.0, tl.float32)
    if level_ptr is not None:
        levels = level_ptr + (head * N + n) * CHUNK
        left = tl.exp(tl.load(levels + c))
        later = tl.exp(tl.load(levels + CHUNK - 1) - tl.load(levels + c))
    shares = _shares(levels, CHUNK)
    scores, d_scores = tl.zeros([CHUNK, CHUNK], tl.float32), tl.zeros([CHUNK, CHUNK], tl.float32)
    if NORMALISED:
        d_norm = tl.load(d_norm_ptr + head * T + at, mask=at < T, other=0.0)
        d_scores += d_norm[:, None]
    for d0 in range(0, D, BLOCK_D):
        v = _tile(v_ptr, row, d0, v_by[2], T, D, CHUNK, BLOCK_D)
        d_out = _tile(d_out_ptr, row, d0, d_out_by[2], T, D, CHUNK, BLOCK_D)
        d_scores += _product(d_out, tl.trans(v), PRECISION)
    d_scores *= shares
    for f0 in range(0, F, BLOCK_F):
        q = _tile(q_ptr, row, f0, q_by[2], T, F, CHUNK, BLOCK_F)
        k = _tile(k_ptr, row, f0, k_by[2], T, F, CHUNK, BLOCK_F)
        scores += _product(q, tl.trans(k), PRECISION)
        d_q, d_k = tl.zeros([CHUNK, BLOCK_F], tl.float32), tl.zeros([CHUNK, BLOCK_F], tl.float32)
        for d0 in range(0, D, BLOCK_D):
            v = _tile(v_ptr, row, d0, v_by[2], T, D, CHUNK, BLOCK_D)
            d_out = _tile(d_out_ptr, row, d0, d_out_by[2], T, D, CHUNK, BLOCK_D)
            state = _tile(state_ptr, f0, d0, E, F, D, BLOCK_F, BLOCK_D).to(q.dtype)
            d_state = _tile(d_state_ptr, f0, d0, E, F, D, BLOCK_F, BLOCK_D).to(q.dtype)
            d_q += _product(d_out, tl.trans(state), PRECISION)
            d_k += _product(v, tl.trans(d_state), PRECISION)
        if NORMALISED:
            f = f0 + tl.arange(0, BLOCK_F)
            z = tl.load(state_ptr + f.to(tl.int64) * E + D, mask=f < F, other=0.0)
            d_z = tl.load(d_state_ptr + f.to(tl.int64) * E + D, mask=f < F, other=0.0)
            d_q += d_norm[:, None] * z[None, :]
            d_k += d_z[None, :]
        d_q = d_q * left[:, None] + _product(d_scores.to(k.dtype), k, PRECISION)
        d_k = d_k * later[:, None] + _product(tl.trans(d_scores.to(q.dtype)), q, PRECISION)
        _store(d_q_ptr + head * T * F, d_q, row, f0, F, T, F, CHUNK, BLOCK_F)
        _store(d_k_ptr + head * T * F, d_k, row, f0, F, T, F, CHUNK, BLOCK_F)
    scores *= shares
    for d0 in range(0, D, BLOCK_D):
        d_out = _tile(d_out_ptr, row, d0, d_out_by[2], T, D, CHUNK, BLOCK_D)
        d_v = tl.zeros([CHUNK, BLOCK_D], tl.float32)
        for f0 in range(0, F, BLOCK_F):
            k = _tile(k_ptr, row, f0, k_by[2], T, F, CHUNK, BLOCK_F)
            d_v += _product(k, _tile(d_state_ptr, f0, d0, E, F, D, BLOCK_F, BLOCK_D).to(k.dtype), PRECISION)
        d_v = d_v * later[:, None] + _product(tl.trans(scores.to(d_out.dtype)), d_out, PRECISION)
        _store(d_v_ptr + head * T * D, d_v, row, d0, D, T, D, CHUNK, BLOCK_D)


class Launch:
    """The kernels for one set of inputs: q, k [B, H, T, F], v [B, H, T, D], decay [B, H, T]; all of one dtype."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, normalised: bool, precision: str, tiles: list[int]
    ) -> None:
        self.q, self.k, self.v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        self.B, self.H, self.T, self.F = q.shape
        self.D = v.shape[3]
        self.E = self.D + normalised
        self.chunk, block_f, block_d, warps, stages = tiles
        self.N = triton.cdiv(self.T, self.chunk)
        widened = triton.knobs.runtime.interpret and q.dtype == torch.bfloat16
        self.settings = {
            "NORMALISED": normalised, "PRECISION": "widened" if widened else precision, "CHUNK": self.chunk,
            "BLOCK_F": _at_most(block_f, self.F), "BLOCK_D": _at_most(block_d, self.D), "num_warps": warps,
            "num_stages": stages,
        }  # fmt: skip
        self.sizes = self.H, self.T, self.N, self.F, self.D, self.E
        self.d_tiles = triton.cdiv(self.D, self.settings["BLOCK_D"])
        self.levels = None
        if decay is not None:
            whole = torch.nn.functional.pad(decay.float(), (0, self.N * self.chunk - self.T))
            self.levels = whole.view(self.B, self.H, self.N, self.chunk).cumsum(3)

    def states(self, x: Tensor, y: Tensor, norm: Tensor | None, first: Tensor | None, backwards: bool = False) -> tuple:
        """(the states along the chunks [B, H, N, F, E], the state at the end [B, H, F, E])."""
        kept = x.new_empty(self.B, self.H, self.N, self.F, self.E, dtype=torch.float32)
        last = x.new_empty(self.B, self.H, self.F, self.E, dtype=torch.float32)
        first = None if first is None else first.float().contiguous()
        grid = self.B * self.H * triton.cdiv(self.F, self.settings["BLOCK_F"]) * self.d_tiles
        with torch.cuda.device_of(x):
            _states[(grid,)](
                x, y, norm, self.levels, first, kept, last, x.stride()[:3], y.stride()[:3], *self.sizes,
                BACKWARDS=backwards, **self.settings,
            )  # fmt: skip
        return kept, last

    def forward(self, state: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """(out [B, H, T, D], normalisers [B, H, T] or empty, the state at the end [B, H, F, E])."""
        out = torch.empty_like(self.v)
        norm = self.v.new_empty((self.B, self.H, self.T) if self.E > self.D else (0,), dtype=torch.float32)
        before, last = self.states(self.k, self.v, None, state)
        with torch.cuda.device_of(out):
            _read[(self.B * self.H * self.N * self.d_tiles,)](
                self.q, self.k, self.v, self.levels, before, out, norm, self.q.stride()[:3], self.k.stride()[:3],
                self.v.stride()[:3], out.stride()[:3], *self.sizes, eps, **self.settings,
            )  # fmt: skip
        return out, norm, last

    def backward(self, d_out: Tensor, d_norm: Tensor | None, state: Tensor | None, d_last: Tensor | None) -> tuple:
        """Gradients of q, k, v and of the first state; also the last state."""
        d_out = d_out if d_out.stride(3) == 1 else d_out.contiguous()
        before, last = self.states(self.k, self.v, None, state)
        behind, d_first = self.states(self.q, d_out, d_norm, d_last, backwards=True)
        grads = [x.new_empty(x.shape) for x in (self.q, self.k, self.v)]
        with torch.cuda.device_of(d_out):
            _gradients[(self.B * self.H * self.N,)](
                self.q, self.k, self.v, d_out, d_norm, self.levels, before, behind, *grads, self.q.stride()[:3],
                self.k.stride()[:3], self.v.stride()[:3], d_out.stride()[:3], *self.sizes, **self.settings,
            )  # fmt: skip
        return (*grads, d_first, last)


def _at_most(block: int, width: int) -> int:
    """A block as wide as needed, at most `block`, at least 16, the minimum for a product of tiles."""
    return min(block, max(16, triton.next_power_of_2(width)))
