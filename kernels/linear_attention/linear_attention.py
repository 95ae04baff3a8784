"""Linear attention: products of feature maps replace the softmax, so time and memory grow as T.

Katharopoulos et al. 2020, "Transformers are RNNs", https://arxiv.org/abs/2006.16236, eq. 5 and 8-12: out_i = q_i S_i /
(q_i z_i + eps), S_i = sum_{j <= i} k_j^T v_j, z_i = sum_{j <= i} k_j; if not causal, the sums run over all j. B batch,
H heads, T time, F features of a query or key, D width of a value, C positions in a chunk, N chunks.

An additional value column of ones makes z one more column of S. Inside a chunk all pairs are computed, and one prefix
[F, D + 1] per chunk carries the past: neither forward nor backward holds a prefix per position.

Implementations: `chunks`, with PyTorch's products; `triton`, causal only. The default is `chunks`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch import tuned, work
from kernels.dispatch.mode import is_plain
from kernels.dispatch.precision import computed
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.linear_attention.chunked import (
    SIZES,
    chunked_attention,
    lean,
    named,
    needs_tiles,
    tiled,
)
from kernels.rowwise import rows

# Positions. Forward and backward at B 8, H 4, F = D = 32, float32, one core of a shared CPU, best of 7, with 16, 32,
# 64, 128: T 1024: 76, 73, 65, 124 ms; T 256: 11, 11, 13, 18 ms. Up to 64 the times are almost equal, and 64 keeps the
# fewest prefixes.
CHUNK = 64
POSITIONS = (16, 32, 64, 128, 256)
EPSILON = 1e-6


def linear_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition, one position after the other; arguments as for `linear_attention`."""
    wide = torch.promote_types(q.dtype, torch.float32)
    Q, K, V = q.to(wide), k.to(wide), v.to(wide)
    B, H, _, width = K.shape
    D = V.shape[3]
    state = torch.zeros(B, H, width, D + 1, dtype=wide, device=q.device) if state is None else state
    S, z = state[..., :D], state[..., D]
    sums, normalisers = [], []
    for key, value in zip(K.unbind(2), V.unbind(2), strict=True):
        S = S + key[:, :, :, None] * value[:, :, None, :]
        z = z + key
        sums.append(S)
        normalisers.append(z)
    rows = []
    for t, query in enumerate(Q.unbind(2)):
        s, n = (sums[t], normalisers[t]) if causal else (S, z)
        rows.append((query[..., None] * s).sum(2) / ((query * n).sum(2, keepdim=True) + EPSILON))
    return torch.stack(rows, dim=2).to(v.dtype), torch.cat([S, z[..., None]], dim=3)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, state: Tensor | None = None, config: Choice | None = None
) -> tuple[Tensor, Tensor]:
    """q and k: [B, H, T, F], already mapped to features; v: [B, H, T, D] -> out [B, H, T, D] and the state after T.

    state: [B, H, F, D + 1], S and z from before. A masked key is a zero in `k`. Half precision is summed in float32,
    and the state is in float32: sums over a long past would otherwise stop growing. Without `config` the tuned choice
    runs.
    """
    B, H, T, features = q.shape
    flags = (causal, state is not None, rows.learns(q, k, v, state))
    call = tuned.implementation(OPERATION, q.device.type, computed(v), (B, H, T, features, v.shape[3]), flags, config)
    return call(q, k, v, causal=causal, state=state)


def _chunks(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, state: Tensor | None = None, positions: int
) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(q.dtype, torch.float32)
    Q, K, V = q.to(wide), k.to(wide), v.to(wide)
    if not causal:
        out, state = _both_ways(Q, K, V, state)
        return out.to(computed(v)), state.to(wide)
    summed, state = _causal(Q, K, F.pad(V, (0, 1), value=1.0), state, positions)
    out = summed[..., :-1] / (summed[..., -1:] + EPSILON)
    return out.to(computed(v)), state.to(wide)


def _both_ways(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Not causal. Here z is a separate sum: a column of ones next to the values would need a copy of them all."""
    whole = torch.cat([k.transpose(2, 3) @ v, k.sum(2)[..., None]], dim=3)  # [B, H, F, D + 1]
    whole = whole if state is None else whole + state
    read = _read if torch.compiler.is_compiling() or is_plain() else _Read.apply
    return read(q, whole)[0], whole


def _read(q: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    """What queries [B, H, T, F] read of the sums [B, H, F, D + 1]: [B, H, T, D], and their normalisers [B, H, T, 1]."""
    above, below = (q @ whole).split((whole.shape[3] - 1, 1), dim=3)
    below = below + EPSILON
    return above / below, below


class _Read(torch.autograd.Function):
    """`_read` with fewer passes over the values: autograd of a quotient reads and writes them five times.

    The heads of a position are next to each other in the result, [B, T, H, D], so that merging them costs nothing.
    """

    @staticmethod
    def forward(q: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        B, H, T, _ = q.shape
        above, below = (q @ whole).split((whole.shape[3] - 1, 1), dim=3)
        below = below + EPSILON
        out = q.new_empty(B, T, H, above.shape[3]).transpose(1, 2)
        return torch.div(above, below, out=out), below

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        q, whole, out, below = ctx.saved_tensors
        if torch.is_grad_enabled():
            above = grad / below
            sums = torch.cat([above, -(above * out).sum(3, keepdim=True)], dim=3)
        else:
            # gradients of numerators and, in the last column, of normalisers
            sums = grad.new_empty(*grad.shape[:3], whole.shape[3])
            above = torch.div(grad, below, out=sums[..., :-1])
            torch.neg((above * out).sum(3), out=sums[..., -1])
        return sums @ whole.transpose(2, 3), q.transpose(2, 3) @ sums


def _causal(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None, positions: int) -> tuple[Tensor, Tensor]:
    B, H, T = q.shape[:3]
    N, C = chunks(T, positions)

    def chunked(x: Tensor) -> Tensor:
        """[B, H, T, X] -> [B, H, N, C, X]; zeros after the end add nothing to any sum."""
        return (x if N * C == T else F.pad(x, (0, 0, 0, N * C - T))).unflatten(2, (N, C))

    Q, K, V = chunked(q), chunked(k), chunked(v)
    each = K.transpose(3, 4) @ V  # [B, H, N, F, D + 1]
    first = torch.zeros_like(each[:, :, :1]) if state is None else state[:, :, None]
    # Shifted before the sum: to subtract the own chunk afterwards would let the future in through rounding.
    before = torch.cat([first, each[:, :, :-1]], dim=2).cumsum(2)
    near = (Q @ K.transpose(3, 4)).tril() @ V
    summed = (near + Q @ before).view(B, H, N * C, v.shape[3])[:, :, :T]
    return summed, before[:, :, -1] + each[:, :, -1]


def chunks(length: int, most: int = CHUNK) -> tuple[int, int]:
    """(number of chunks, positions of a chunk) of a causal pass over `length` positions."""
    positions = min(length, most)
    return -(-length // positions), positions


def _triton(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, state: Tensor | None = None, **tiles: Any
) -> tuple[Tensor, Tensor]:
    assert causal
    return chunked_attention(q, k, v, state=state, normalised=True, eps=EPSILON, **tiles)


def _refuses(problem: Problem) -> str | None:
    return needs_tiles(problem) if problem["causal"] else "without causality two products are enough"


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, H, T, width, D = (problem[name] for name in SIZES)
    shapes = [(B, H, T, width), (B, H, T, width), (B, H, T, D), (B, H, width, D + 1)]
    q, k, v, state = rows.numbers(problem, seed, *shapes, draw=torch.rand)
    begun = state.detach().float().requires_grad_(problem["gradients"]) if problem["begun"] else None
    return (q, k, v), {"causal": problem["causal"], "state": begun}


OPERATION = register(
    Operation(
        name="linear_attention",
        reference=linear_attention_reference,
        implementations={
            "chunks": Implementation(
                "chunks", _chunks, {"positions": POSITIONS}, default={"positions": CHUNK}, work=work.chunks
            ),
            "triton": tiled(_triton, _refuses),
        },
        inputs=_inputs,
        problems=named("linear_attention", causal=True),
        default=lambda problem: "chunks",
        sizes=SIZES,
        lean=lean,
        plain=partial(_chunks, positions=CHUNK),
        flags=("causal", "begun", "gradients"),
    )
)
