"""Attention whose scores are a small network of query and key, in memory that does not grow with the number of pairs.

Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
https://arxiv.org/abs/1409.0473, section 3.1: e_ij = w . tanh(q_i + k_j), softmax over j, the sum of the values v_j. B
batch, H heads, Tq queries, Tk keys, A width of the network, D width of a value.

The tanh is taken of A numbers for each pair, B * H * Tq * Tk * A in all, and no product of matrices can replace it. The
numbers are computed for a few queries at a time, and again in the backward pass. Time is O(Tq * Tk * A). Memory is that
of the arguments and of one chunk. The causal diagonal is aligned to the bottom right: the last query reads the last
key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator

# Numbers of one chunk, 4 MB in float32. Forward and backward at B 4, H 1, T 512, A 64, D 64, one core of a shared CPU,
# best of 3: 0.57 s with 2^16, 0.46 s with 2^20, 0.70 s with 2^24.
CHUNK = 1 << 20


def additive_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor, keys: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """The definition, for all pairs at once; arguments as for `additive_attention`."""
    scores = torch.einsum("bhija,ha->bhij", (q[:, :, :, None] + k[:, :, None]).tanh(), weight)
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if causal:
        allowed = allowed.tril(k.shape[2] - q.shape[2])
    if keys is not None:
        allowed = allowed & keys[:, None, None]
    weights = (scores - scores.amax(3, keepdim=True)).exp() * allowed
    total = weights.sum(3, keepdim=True)
    return weights @ v / torch.where(total > 0, total, 1)


def additive_attention(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor, keys: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """q: [B, H, Tq, A], k: [B, H, Tk, A], v: [B, H, Tk, D], weight: [H, A] -> [B, H, Tq, D].

    keys: [B, Tk], True where a key may be read. A query without any key gives zeros. Best in float32 or wider.
    """
    if is_plain():
        return additive_attention_reference(q, k, v, weight, keys, causal=causal)
    return _forward(q, k, v, weight, keys, causal)[0]


# Custom operators: the compiler treats each as one step, and the backward pass computes the scores again.
@operator("additive_attention")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor, keys: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """The result [B, H, Tq, D], and the logarithm of each query's sum of exponentials, [B, H, Tq]."""
    out, sums = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3])
    for rows, columns in _chunks(q, k, causal):
        _, scores = _scores(q, k, weight, keys, causal, rows, columns)
        total = scores.logsumexp(3)
        sums[:, :, rows] = total.masked_fill_(total.isneginf(), 0)  # no key at all: all its weights become zero
        out[:, :, rows] = (scores - sums[:, :, rows, None]).exp_() @ v[:, :, :columns]
    return out, sums


@operator("additive_attention_backward")
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, weight: Tensor, keys: Tensor | None, causal: bool,
    out: Tensor, sums: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and weight."""
    d_q, d_k, d_v = (torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v))
    d_weight = torch.zeros_like(weight)
    delta = (grad * out).sum(3)
    for rows, columns in _chunks(q, k, causal):
        opened, scores = _scores(q, k, weight, keys, causal, rows, columns)
        weights = (scores - sums[:, :, rows, None]).exp_()
        d_v[:, :, :columns] += weights.mT @ grad[:, :, rows]
        d_scores = (grad[:, :, rows] @ v[:, :, :columns].mT).sub_(delta[:, :, rows, None]).mul_(weights)
        by_head = d_scores.transpose(0, 1)  # [H, B, R, K]
        d_weight += torch.bmm(by_head.flatten(1)[:, None], opened.flatten(1, 3))[:, 0]
        opened.square_().neg_().add_(1).mul_(by_head[..., None])
        d_q[:, :, rows] = opened.sum(3).transpose(0, 1)
        d_k[:, :, :columns] += opened.sum(2).transpose(0, 1)
    return d_q.mul_(weight[:, None]), d_k.mul_(weight[:, None]), d_v, d_weight


def _chunks(q: Tensor, k: Tensor, causal: bool) -> Iterator[tuple[slice, int]]:
    """(queries, number of keys that they may read) of each chunk."""
    B, H, queries, A = q.shape
    length = k.shape[2]
    rows = max(1, CHUNK // max(1, B * H * length * A))
    for first in range(0, queries, rows):
        last = min(queries, first + rows)
        yield slice(first, last), length - queries + last if causal else length


def _scores(
    q: Tensor, k: Tensor, weight: Tensor, keys: Tensor | None, causal: bool, rows: slice, columns: int
) -> tuple[Tensor, Tensor]:
    """tanh(q + k): [H, B, R, K, A], and the scores: [B, H, R, K], -inf where a key may not be read."""
    Q, K = q[:, :, rows].transpose(0, 1), k[:, :, :columns].transpose(0, 1)
    opened = (Q[:, :, :, None] + K[:, :, None]).tanh_()
    scores = torch.bmm(opened.flatten(1, 3), weight[:, :, None]).view(opened.shape[:4]).transpose(0, 1)
    if causal:
        places = torch.arange(rows.start, rows.stop, device=q.device) + (k.shape[2] - q.shape[2])
        scores = scores.masked_fill(torch.arange(columns, device=q.device) > places[:, None], -math.inf)
    if keys is not None:
        scores = scores.masked_fill(~keys[:, None, None, :columns], -math.inf)
    return opened, scores


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, weight: Tensor, keys: Tensor | None, causal: bool) -> tuple[Tensor, Tensor]:
    return q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3])


@_backward.register_fake
def _(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(map(torch.empty_like, inputs[:4]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, weight, keys, ctx.causal = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, weight, keys, *output)


def _gradients(ctx: Any, grad: Tensor, _sums: None) -> tuple[Tensor | None, ...]:
    q, k, v, weight, keys, out, sums = ctx.saved_tensors
    return *_backward(grad, q, k, v, weight, keys, ctx.causal, out, sums), None, None


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Counts the products with the weight and with the values, for all pairs including masked ones."""
    B, H, queries, A = q
    return 2 * B * H * queries * k[2] * (A + v[3])


@flops_of(_backward)
def _backward_flops(_grad: Any, q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    return 2 * _forward_flops(q, k, v)
