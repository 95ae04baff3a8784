"""Weighted means whose weights are a kernel function of the distance between query and key.

Nadaraya 1964, "On Estimating Regression", https://doi.org/10.1137/1109020; Watson 1964, "Smooth Regression Analysis":
f(q) = sum_j K(|q - k_j|) v_j / sum_j K(|q - k_j|). K(u) is zero for u above 1; for u up to 1 it is one of
  boxcar: 1, epanechnikov: 1 - u^2, triangular: 1 - u
(constant factors cancel). A query with no key within a distance of one gives zeros. The Gaussian kernel is a softmax:
`gaussian`. B batch, H heads, Tq queries, Tk keys, D width of a query and a key, E width of a value.

Distances are computed from differences, not from products, so that the distance of a query to itself is exactly zero.
They are computed for a few queries at a time, and again in the backward pass: memory is that of the arguments and of
one chunk. The causal diagonal is aligned to the bottom right: the last query reads the last key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kernels.attention.gaussian import gaussian
from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator

COMPACT = ("boxcar", "epanechnikov", "triangular")
# Distances of one chunk, 4 MB in float32.
CHUNK = 1 << 20


def nadaraya_watson_reference(
    q: Tensor, k: Tensor, v: Tensor, kernel: str, keys: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """The definition, for all pairs at once and all kernels; arguments as for `nadaraya_watson`."""
    squares = (q[:, :, :, None] - k[:, :, None]).square().sum(4)  # [B, H, Tq, Tk]
    allowed = torch.ones_like(squares, dtype=torch.bool)
    if causal:
        allowed = allowed.tril(k.shape[2] - q.shape[2])
    if keys is not None:
        allowed = allowed & keys[:, None, None]
    # The root has no slope at zero; the weight there is 1 for all kernels.
    u = torch.where(squares > 0, squares, 1).sqrt() * (squares > 0)
    weights = {
        "gaussian": (-squares / 2).exp(),
        "boxcar": (u <= 1).to(u.dtype),
        "epanechnikov": (1 - squares).clamp(min=0),
        "triangular": (1 - u).clamp(min=0),
    }[kernel] * allowed
    total = weights.sum(3, keepdim=True)
    return weights @ v / torch.where(total > 0, total, 1)


def nadaraya_watson(
    q: Tensor, k: Tensor, v: Tensor, kernel: str, keys: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """q: [B, H, Tq, D], k: [B, H, Tk, D], in units of the bandwidth, v: [B, H, Tk, E] -> [B, H, Tq, E].

    kernel: "gaussian" or one of COMPACT. keys: [B, Tk], True where a key may be read. All in float32 or wider. Raises
    ValueError if the kernel is unknown.
    """
    if kernel == "gaussian":
        return gaussian(q, k, v, keys, causal=causal)
    if kernel not in COMPACT:
        raise ValueError(f"kernel must be gaussian or one of {', '.join(COMPACT)}, but got {kernel!r}.")
    if is_plain():
        return nadaraya_watson_reference(q, k, v, kernel, keys, causal=causal)
    return _forward(q, k, v, keys, kernel, causal)[0]


# Custom operators: the compiler treats each as one step, and the backward pass computes the weights again.
@operator("nadaraya_watson")
def _forward(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, kernel: str, causal: bool) -> tuple[Tensor, Tensor]:
    """The result [B, H, Tq, E], and the divisors of the weights of each query, [B, H, Tq]."""
    out, totals = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3])
    for rows, columns in _chunks(q, k, causal):
        weights = _weights(_distances(q, k, rows, columns), keys, kernel, causal, rows, k.shape[2] - q.shape[2])
        total = weights.sum(3)
        totals[:, :, rows] = total.masked_fill_(total == 0, 1)
        out[:, :, rows] = weights @ v[:, :, :columns] / totals[:, :, rows, None]
    return out, totals


@operator("nadaraya_watson_backward")
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, kernel: str, causal: bool,
    out: Tensor, totals: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v."""
    d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    delta = (grad * out).sum(3)
    for rows, columns in _chunks(q, k, causal):
        u = _distances(q, k, rows, columns)
        weights = _weights(u, keys, kernel, causal, rows, k.shape[2] - q.shape[2])
        total = totals[:, :, rows, None]
        d_v[:, :, :columns] += (weights / total).mT @ grad[:, :, rows]
        if kernel == "boxcar":
            continue  # flat wherever it has a slope
        d_weights = (grad[:, :, rows] @ v[:, :, :columns].mT - delta[:, :, rows, None]) / total * (weights > 0)
        # Derivative of half the square of a distance, which is a product: (q - k) (dq - dk).
        slope = -2 * d_weights if kernel == "epanechnikov" else torch.where(u > 0, -d_weights / u, 0)
        Q, K = q[:, :, rows], k[:, :, :columns]
        d_q[:, :, rows] = Q * slope.sum(3)[..., None] - slope @ K
        d_k[:, :, :columns] += K * slope.sum(2)[..., None] - slope.mT @ Q
    return d_q, d_k, d_v


def _chunks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, int]]:
    """(queries, number of keys that they may read) of each chunk."""
    B, H, queries, _ = q.shape
    length = k.shape[2]
    rows = max(1, CHUNK // max(1, B * H * length))
    for first in range(0, queries, rows):
        last = min(queries, first + rows)
        yield slice(first, last), length - queries + last if causal else length


def _distances(q: Tensor, k: Tensor, rows: slice, columns: int) -> Tensor:
    """|q - k|: [B, H, R, K]."""
    Q, K = q[:, :, rows].contiguous(), k[:, :, :columns].contiguous()
    return torch.cdist(Q, K, compute_mode="donot_use_mm_for_euclid_dist")


def _weights(u: Tensor, keys: Tensor | None, kernel: str, causal: bool, rows: slice, past: int) -> Tensor:
    """[B, H, R, K], zero where a key may not be read."""
    if kernel == "boxcar":
        weights = (u <= 1).to(u.dtype)
    else:
        weights = (1 - (u * u if kernel == "epanechnikov" else u)).clamp_(min=0)
    if causal:
        places = torch.arange(rows.start, rows.stop, device=u.device) + past
        weights = weights.mul_(torch.arange(u.shape[3], device=u.device) <= places[:, None])
    return weights if keys is None else weights.mul_(keys[:, None, None, : u.shape[3]])


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, kernel: str, causal: bool) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3])


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, keys, ctx.kernel, ctx.causal = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, keys, *output)


def _gradients(ctx: Any, grad: Tensor, _totals: None) -> tuple[Tensor | None, ...]:
    q, k, v, keys, out, totals = ctx.saved_tensors
    return *_backward(grad, q, k, v, keys, ctx.kernel, ctx.causal, out, totals), None, None, None


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Count each distance as one product of two vectors, for all pairs, masked pairs included."""
    B, H, queries, D = q
    return 2 * B * H * queries * k[2] * (D + v[3])


@flops_of(_backward)
def _backward_flops(_grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return 2 * _forward_flops(q, k, v)
