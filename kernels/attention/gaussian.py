"""Nadaraya-Watson means with a Gaussian kernel: softmax_j(-|q - k_j|^2 / 2) v_j.

Expanded, the exponent is q k_j - |k_j|^2 / 2, because |q|^2 is the same for all keys and cancels. That is attention
with one more column. The expansion loses digits if squares are large: float32 keeps seven digits of |k_j|^2, and the
weights depend on its last ones. Therefore:
- One key is subtracted from all queries and keys, so that a common shift does no harm.
- If all squares are then below NEAR, attention computes the mean in the dtype of the arguments.
- If not, for example because a key is an outlier or keys drift, the exponents are computed in float64, for a few
  queries at a time, and again in the backward pass. Beyond FAR the differences are squared without expansion.
So the weights have the accuracy of float32 wherever the keys are.

B batch, H heads, Tq queries, Tk keys, D width of a query and a key, E width of a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.attention import attention
from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator

# Largest square in float32: an exponent is then wrong by at most about 1e-5.
NEAR = 128.0
# Largest square in float64: an exponent is then wrong by at most about 1e-6.
FAR = 1e9
# Lowest exponent whose weight counts; its weight is 1e-35.
LOWEST = -80.0
# Exponents of one chunk, 8 MB in float64.
CHUNK = 1 << 20


def gaussian(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """q: [B, H, Tq, D], k: [B, H, Tk, D], in units of the bandwidth, v: [B, H, Tk, E] -> [B, H, Tq, E].

    keys: [B, Tk], True where a key may be read. All in float32 or wider. A query without a key gives zeros.
    """
    origin = _first_key(k, keys) if k.shape[2] else None
    if is_plain():
        return _plain(q, k, v, keys, origin, causal)
    if origin is None:
        return q.new_zeros(*q.shape[:3], v.shape[3])
    if not torch.compiler.is_compiling() and _all_near(q, k, origin):
        return _as_attention(q - origin, k - origin, v, keys, causal)
    return _forward(q, k, v, keys, origin, causal)[0]


def _as_attention(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, causal: bool) -> Tensor:
    """The exponent is [q, 1] . [k, -|k|^2 / 2]. Attention divides by the root of its width, which is compensated."""
    D, E = q.shape[3], v.shape[3]
    longer = max(D + 1, E)
    Q = F.pad(q, (0, 1), value=1.0) * longer**0.5
    K = torch.cat([k, -k.square().sum(3, keepdim=True) / 2], dim=3)
    Q, K, V = (F.pad(heads, (0, longer - heads.shape[3])) for heads in (Q, K, v))
    return attention(Q, K, V, causal=causal, keys=keys)[..., :E]


def _plain(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, origin: Tensor | None, causal: bool) -> Tensor:
    """The same in float64 and in operators of PyTorch only, for exports."""
    Q, K = q.double(), k.double()
    if origin is not None:
        Q, K = Q - origin, K - origin
    scores = Q @ K.mT - K.square().sum(3)[:, :, None] / 2
    allowed = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed.tril(k.shape[2] - q.shape[2])
    if keys is not None:
        allowed = allowed & keys[:, None, None]
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(3).masked_fill(~allowed, 0.0)
    return weights.to(v.dtype) @ v


def _first_key(k: Tensor, keys: Tensor | None) -> Tensor:
    """The first key that may be read, [B, H, 1, D]; without gradient, because no distance depends on it."""
    if keys is None:
        return k[:, :, :1].detach()
    place = keys.to(torch.uint8).argmax(1)[:, None, None, None]
    return k.detach().gather(2, place.expand(-1, k.shape[1], 1, k.shape[3]))


def _all_near(q: Tensor, k: Tensor, origin: Tensor) -> bool:
    """Whether all squares are below NEAR. Assumed without looking where tensors hold no numbers."""
    if q.device.type == "meta" or not q.numel():
        return True
    if q.is_cuda and torch.cuda.is_current_stream_capturing():
        return False  # a graph that is captured cannot wait for a number
    return _farthest(q, k, origin) <= NEAR


@torch.no_grad()
def _farthest(q: Tensor, k: Tensor, origin: Tensor) -> float:
    """The largest |x - origin|^2 of all queries and keys."""
    squares = [(each - origin).square().sum(3).max() for each in (q, k) if each.numel()]
    return float(torch.stack(squares).max())


# Custom operators: the compiler treats each as one step, and the backward pass computes the weights again.
@operator("gaussian")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, origin: Tensor, causal: bool
) -> tuple[Tensor, Tensor]:
    """The means [B, H, Tq, E], and the logarithms of the sums of the weights, float64 [B, H, Tq]."""
    out, sums = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float64)
    for rows, columns, scores, _, _ in _chunks(q, k, keys, origin, causal):
        largest = scores.amax(3, keepdim=True)
        largest.masked_fill_(largest == -torch.inf, 0)
        weights = _weights(scores.sub_(largest).to(v.dtype))
        total = weights.sum(3, keepdim=True)
        total.masked_fill_(total == 0, 1)
        out[:, :, rows] = weights @ v[:, :, :columns] / total
        sums[:, :, rows] = (largest + total.double().log()).squeeze(3)
    return out, sums


@operator("gaussian_backward")
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, origin: Tensor, causal: bool, sums: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k and v."""
    d_q, d_k, d_v = (torch.zeros_like(each, dtype=torch.float64) for each in (q, k, v))
    dtype, grad, v = v.dtype, grad.double(), v.double()
    for rows, columns, scores, Q, K in _chunks(q, k, keys, origin, causal):
        weights = _weights(scores.sub_(sums[:, :, rows, None]))
        weights.div_(weights.sum(3, keepdim=True).clamp_(min=0.5))  # to float64: sums have the digits of the result
        d_v[:, :, :columns] += weights.mT @ grad[:, :, rows]
        mean = weights @ K
        slope = grad[:, :, rows] @ v[:, :, :columns].mT
        slope.sub_((slope * weights).sum(3, keepdim=True)).mul_(weights)
        # The derivative of -|q - k|^2 / 2 is (k - q) (dq - dk). Slopes sum to zero for each query up to rounding, so
        # any point may take the place of q. The mean key is near the keys that count; a query may be far from them.
        d_q[:, :, rows] = slope @ K - mean * slope.sum(3)[..., None]
        d_k[:, :, :columns] += slope.mT @ Q - K * slope.sum(2)[..., None]
    return d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(dtype)


def _chunks(
    q: Tensor, k: Tensor, keys: Tensor | None, origin: Tensor, causal: bool
) -> Iterator[tuple[slice, int, Tensor, Tensor, Tensor]]:
    """(queries, number of keys that they may read, exponents, those queries and keys from the origin), in float64.

    Exponents: [B, H, R, K], minus infinity where a key may not be read.
    """
    B, H, queries, _ = q.shape
    length = k.shape[2]
    far = not _farthest(q, k, origin) <= FAR
    q, k = q.double() - origin, k.double() - origin
    step = max(1, CHUNK // max(1, B * H * length))
    for first in range(0, queries, step):
        rows = slice(first, min(queries, first + step))
        columns = length - queries + rows.stop if causal else length
        Q, K = q[:, :, rows], k[:, :, :columns]
        yield rows, columns, _hidden(_exponents(Q, K, far), keys, causal, rows, length - queries), Q, K


def _exponents(Q: Tensor, K: Tensor, far: bool) -> Tensor:
    """-|q - k|^2 / 2: [B, H, R, K]."""
    if far:
        distances = torch.cdist(Q.contiguous(), K.contiguous(), compute_mode="donot_use_mm_for_euclid_dist")
        return distances.square_().mul_(-0.5)
    halves = [each.square().sum(3) / 2 for each in (Q, K)]
    return (Q @ K.mT).sub_(halves[0][..., None]).sub_(halves[1][:, :, None])


def _weights(scores: Tensor) -> Tensor:
    """exp(scores), in place. Numbers so small that processors compute with them slowly become zeros."""
    return scores.masked_fill_(scores < LOWEST, -torch.inf).exp_()


def _hidden(scores: Tensor, keys: Tensor | None, causal: bool, rows: slice, past: int) -> Tensor:
    """The scores with minus infinity where a key may not be read."""
    if causal:
        places = torch.arange(rows.start, rows.stop, device=scores.device) + past
        scores = scores.masked_fill_(torch.arange(scores.shape[3], device=scores.device) > places[:, None], -torch.inf)
    return scores if keys is None else scores.masked_fill_(~keys[:, None, None, : scores.shape[3]], -torch.inf)


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, origin: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=torch.float64)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, keys, origin, ctx.causal = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, keys, origin, output[1])


def _gradients(ctx: Any, grad: Tensor, _sums: None) -> tuple[Tensor | None, ...]:
    q, k, v, keys, origin, sums = ctx.saved_tensors
    return *_backward(grad, q, k, v, keys, origin, ctx.causal, sums), None, None, None


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """As attention counts it, with one more column; masked pairs included."""
    B, H, queries, D = q
    return 4 * B * H * queries * k[2] * max(D + 1, v[3])


@flops_of(_backward)
def _backward_flops(_grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return 2 * _forward_flops(q, k, v)
