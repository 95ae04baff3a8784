"""Sums of linear attention with decay: earlier terms shrink by a factor in each step.

S_i = g_i S_{i-1} + k_i^T v_i, out_i = q_i S_i; so key j has the weight exp(l_i - l_j) at i, where l is the running sum
of log g. This is the gate of random feature attention (Peng et al. 2021, https://arxiv.org/abs/2103.02143, eq. 6). It
also lets a sum of exponentials follow a running maximum without looking ahead. Implementations and defaults are those
of `kernels.linear_attention.linear_attention`. B batch, H heads, T time, F features of a query or key, D width of a
value, C positions in a chunk, N chunks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch import tuned, work
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.linear_attention.chunked import SIZES, chunked_attention, lean, named, tiled
from kernels.linear_attention.linear_attention import CHUNK, POSITIONS, chunks
from kernels.rowwise import rows

# Positions that are summed at once if no gradient is needed, so that few prefixes are held at a time.
SLAB = 256


def decayed_linear_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, decay: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition, one position after the other; arguments as for `decayed_linear_attention`."""
    B, H, T, features = k.shape
    S = torch.zeros(B, H, features, v.shape[3], dtype=k.dtype, device=k.device) if state is None else state
    factors: Sequence[Tensor | float] = [1.0] * T if decay is None else decay.exp()[..., None, None].unbind(2)
    rows = []
    for factor, query, key, value in zip(factors, q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
        S = factor * S + key[..., None] * value[:, :, None, :]
        rows.append((query[..., None] * S).sum(2))
    return torch.stack(rows, dim=2), S


def decayed_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    decay: Tensor | None = None,
    state: Tensor | None = None,
    config: Choice | None = None,
) -> tuple[Tensor, Tensor]:
    """q and k: [B, H, T, F], v: [B, H, T, D] -> sums [B, H, T, D], not normalised, and the state [B, H, F, D] after T.

    decay: [B, H, T], log g, zero or negative; None means no decay. state: [B, H, F, D], from before. All in one dtype,
    float32 or wider. A column of ones in `v` gives the normaliser. Time and memory grow as T: each chunk carries one
    prefix. Without `config` the tuned choice for this problem runs.
    """
    B, H, T, features = q.shape
    flags = (decay is not None, state is not None, rows.learns(q, k, v, decay, state))
    call = tuned.implementation(OPERATION, q.device.type, q.dtype, (B, H, T, features, v.shape[3]), flags, config)
    return call(q, k, v, decay=decay, state=state)


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, *, decay: Tensor | None = None, state: Tensor | None = None, positions: int
) -> tuple[Tensor, Tensor]:
    B, H, T = q.shape[:3]
    if T > SLAB and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        outs = []
        for start in range(0, T, SLAB):
            at = slice(start, start + SLAB)
            near = None if decay is None else decay[:, :, at]
            piece = q[:, :, at], k[:, :, at], v[:, :, at]
            out, state = _chunks(*piece, decay=near, state=state, positions=positions)
            outs.append(out)
        assert state is not None
        return torch.cat(outs, dim=2), state
    N, C = chunks(T, positions)

    def chunked(x: Tensor) -> Tensor:
        """[B, H, T, X] -> [B, H, N, C, X]; zeros after the end add nothing and do not decay."""
        return (x if N * C == T else F.pad(x, (0, 0, 0, N * C - T))).unflatten(2, (N, C))

    Q, K, V = chunked(q), chunked(k), chunked(v)
    scores = Q @ K.transpose(3, 4)
    if decay is None:
        near = scores.tril() @ V
        summed, state = _carried(Q, K.transpose(3, 4) @ V, None, state)
    else:
        # [B, H, N, C, 1], the logarithm of the remaining share of the state before the chunk; half precision would lose
        # it
        level = chunked(decay[..., None].to(torch.promote_types(decay.dtype, torch.float32))).cumsum(3)
        end = level[:, :, :, -1:]
        later = torch.ones(C, C, dtype=torch.bool, device=q.device).triu(1)
        # Masked before the exponential: for later keys it would grow without bound.
        left = (level - level.transpose(3, 4)).masked_fill(later, -math.inf).exp().to(V.dtype)
        near = (scores * left) @ V
        summed, state = _carried(
            Q, K.transpose(3, 4) @ (V * (end - level).exp().to(V.dtype)), end.exp().to(V.dtype), state
        )
        summed = summed * level.exp().to(V.dtype)
    out = (near + summed).view(B, H, N * C, v.shape[3])[:, :, :T]
    return out.to(v.dtype), state.to(torch.promote_types(v.dtype, torch.float32))


def _carried(q: Tensor, each: Tensor, left: Tensor | None, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """What queries q: [B, H, N, C, F] read of the chunks before their own, and the state after the last chunk.

    each: [B, H, N, F, D], what each chunk adds. left: [B, H, N, 1, 1], the share of the state that remains after it.
    state: [B, H, F, D].
    """
    carried = torch.zeros_like(each[:, :, 0]) if state is None else state
    before = []
    shares = [None] * each.shape[2] if left is None else left.unbind(2)
    # Unbound all at once: the gradient of one selected chunk is as large as all chunks, which would be T^2 in total.
    for added, share in zip(each.unbind(2), shares, strict=True):
        before.append(carried)
        carried = added + (carried if share is None else carried * share)
    return q @ torch.stack(before, dim=2), carried


def _triton(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    out, state = chunked_attention(q, k, v, **options)
    return out.to(v.dtype), state


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, H, T, width, D = (problem[name] for name in SIZES)
    shapes = [(B, H, T, width), (B, H, T, width), (B, H, T, D), (B, H, T), (B, H, width, D)]
    q, k, v, decay, state = rows.numbers(problem, seed, *shapes, draw=torch.rand)
    decay = (-decay.detach()).requires_grad_(problem["gradients"])
    begun = {"decay": decay if problem["forgets"] else None, "state": state if problem["begun"] else None}
    return (q, k, v), begun


OPERATION = register(
    Operation(
        name="decayed_linear_attention",
        reference=decayed_linear_attention_reference,
        implementations={
            "chunks": Implementation(
                "chunks", _chunks, {"positions": POSITIONS}, default={"positions": CHUNK}, work=work.chunks
            ),
            "triton": tiled(_triton),
        },
        inputs=_inputs,
        problems=named("decayed_linear_attention", forgets=True),
        default=lambda problem: "chunks",
        sizes=SIZES,
        lean=lean,
        plain=partial(_chunks, positions=CHUNK),
        flags=("forgets", "begun", "gradients"),
    )
)
