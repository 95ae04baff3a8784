"""A gated recurrent unit that reads a memory in each step, through additive attention.

Bahdanau et al. 2015, https://arxiv.org/abs/1409.0473, section 3.1 and appendix A.2; Luong et al. 2015,
https://arxiv.org/abs/1508.04025, section 3.3, for the other order. read(s) = sum_j a_j m_j with a = softmax_j of w .
tanh(Q s + k_j). step is a gated unit (`kernels.recurrence.gru`) on a_t, the part that comes from the input: that of Cho
et al. 2014, or with `bias` that of torch, whose reset gate is after the product:
  without `output`: c_t = read(h_{t-1}), h_t = step(h_{t-1}, a_t + F c_t), as Bahdanau et al.;
  with it: h_t = step(h_{t-1}, a_t + F o_{t-1}), c_t = read(h_t), o_t = tanh(O [h_t; c_t] + b), fed to the next step.
T time, S positions of the memory, B batch, A width of the scores' network, H width of the state, M of the memory.

Each step needs the previous one, so there is a loop, and the loop should do as little as possible (see
`kernels.recurrence.lstm`). The backward pass computes the tanh of [B, S, A] numbers again for each step; to keep them
would take T times as much memory. Forward and backward at T 64, S 64, B 4, widths of 32, float32, one core of a shared
CPU, best of 3: 12 ms, and 24 ms for the definition under autograd; at B 16 and widths of 128, where tanh takes most of
the time, 82 and 94 ms, keeping 4 and 38 MB.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator
from kernels.recurrence.steps import over


def attending_gru_reference(
    inputs: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor, score: Tensor,
    weight: Tensor, into: Tensor, output: Tensor | None = None, real: Tensor | None = None, mask: Tensor | None = None,
    bias: Tensor | None = None, output_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The definition, one position after the other; arguments as for `attending_gru`."""

    def read(h: Tensor) -> Tensor:
        scores = ((keys + (h @ query.mT)[:, None]).tanh() @ score[:, None])[:, :, 0]  # [B, S]
        if real is None:
            return torch.einsum("bs,bsm->bm", scores.softmax(1), memory)
        weights = scores.masked_fill(~real, -1e9).softmax(1) * real
        return torch.einsum("bs,bsm->bm", weights, memory)

    def unit(h: Tensor, a: Tensor) -> Tensor:
        H = h.shape[1]
        r, z = (a[:, : 2 * H] + h @ weight[: 2 * H].mT).sigmoid().chunk(2, dim=1)
        U = weight[2 * H :].mT
        past = (r * h) @ U if bias is None else r * (h @ U + bias)
        return (1 - z) * (a[:, 2 * H :] + past).tanh() + z * h

    def step(states: tuple[Tensor, Tensor, Tensor], a: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        before, _, fed = states
        c = read(before) if output is None else fed
        h = unit(before, a + c @ into.mT)
        h = h if seen is None else torch.where(seen, h, before)
        if output is None:
            return h, c, fed
        c = read(h)
        o = torch.cat([h, c], dim=1) @ output.mT
        o = (o if output_bias is None else o + output_bias).tanh()
        return h, c, o if seen is None else torch.where(seen, o, fed)

    hs, contexts, fedback = over(step, (h, memory.new_zeros(h.shape[0], memory.shape[2]), fed), (inputs, mask))
    return hs, contexts, fedback


def attending_gru(
    inputs: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor, score: Tensor,
    weight: Tensor, into: Tensor, output: Tensor | None = None, real: Tensor | None = None, mask: Tensor | None = None,
    bias: Tensor | None = None, output_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """All h, c and o: [T, B, H], [T, B, M] and [T, B, H]; without `output` the last is empty.

    inputs: [T, B, 3H], a, in the order r, z, n. keys: [B, S, A], k. memory: [B, S, M]. h: [B, H], the previous state.
    fed: [B, H], the previous o, not read without `output`. query: [A, H], Q. score: [A], w. weight: [3H, H], of the
    unit. into: [3H, M], or [3H, H] with `output`, F. output: [H, H + M], O. real: [B, S], False where the memory may
    not be read; if nothing may be read, c is zero. mask: [T, B, 1], False where h and o stay unchanged. bias: [H], of
    torch's unit, in which the reset gate is after the product; None for that of Cho et al. output_bias: [H], b, only
    with `output`. All but the masks in float32 or wider.
    """
    arguments = inputs, keys, memory, h, fed, query, score, weight, into, output, real, mask, bias, output_bias
    if is_plain():
        hs, contexts, fedback = attending_gru_reference(*arguments)
        return hs, contexts, fedback if output is not None else fedback[:0]
    return _forward(*arguments)[:3]


# Custom operators: the compiler treats each as one step; otherwise it would unroll the loop over all T positions.
@operator("attending_gru")
def _forward(
    inputs: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor, score: Tensor,
    weight: Tensor, into: Tensor, output: Tensor | None, real: Tensor | None, mask: Tensor | None,
    bias: Tensor | None = None, output_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """All h, c and o; r, z and n: [T, B, 3H]; the weights of the memory: [T, B, S]; and with `bias` U_n h + bias: [T,
    B, H], else empty.
    """
    T, B, H = *inputs.shape[:2], h.shape[1]
    hs, contexts = h.new_empty(T, B, H), h.new_empty(T, B, memory.shape[2])
    fedback = h.new_empty(T if output is not None else 0, B, H)
    opened = inputs.clone(memory_format=torch.contiguous_format)
    weights, past = h.new_empty(T, B, keys.shape[1]), h.new_empty(T if bias is not None else 0, B, H)
    barred = None if real is None else torch.where(real, 0.0, -math.inf).masked_fill_(~real.any(1, keepdim=True), 0)
    some = None if real is None else real.any(1, keepdim=True)
    scored = torch.empty_like(keys, memory_format=torch.contiguous_format)

    def read(h: Tensor, t: int) -> Tensor:
        torch.add(keys, torch.mm(h, query.mT)[:, None], out=scored).tanh_()
        scores = torch.mv(scored.view(-1, scored.shape[2]), score).view(B, -1)
        torch.softmax(scores if barred is None else scores.add_(barred), dim=1, out=weights[t])
        if some is not None:
            weights[t].mul_(some)
        torch.bmm(weights[t, :, None], memory, out=contexts[t, :, None])
        return contexts[t]

    for t in range(T):
        a = opened[t].addmm_(read(h, t) if output is None else fed, into.mT)
        gates, n = a.split((2 * H, H), dim=1)
        gates.addmm_(h, weight[: 2 * H].mT).sigmoid_()
        r, z = gates.chunk(2, dim=1)
        if bias is None:
            n.addmm_(r * h, weight[2 * H :].mT).tanh_()
        else:
            n.addcmul_(r, torch.addmm(bias, h, weight[2 * H :].mT, out=past[t])).tanh_()
        torch.lerp(n, h, z, out=hs[t])
        if mask is not None:
            torch.where(mask[t], hs[t], h, out=hs[t])
        h = hs[t]
        if output is not None:
            torch.mm(torch.cat([h, read(h, t)], dim=1), output.mT, out=fedback[t])
            if output_bias is not None:
                fedback[t].add_(output_bias)
            fedback[t].tanh_()
            if mask is not None:
                torch.where(mask[t], fedback[t], fed, out=fedback[t])
            fed = fedback[t]
    return hs, contexts, fedback, opened, weights, past


@operator("attending_gru_backward")
def _backward(
    grad_h: Tensor | None, grad_c: Tensor | None, grad_o: Tensor | None, hs: Tensor, contexts: Tensor, fedback: Tensor,
    opened: Tensor, weights: Tensor, past: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor,
    score: Tensor, weight: Tensor, into: Tensor, output: Tensor | None, mask: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """The gradients of the first nine arguments of the forward pass, of `output`, `bias` and `output_bias`; those of
    arguments that are None have no meaning.
    """
    T, B, H = hs.shape
    before = torch.cat([h[None], hs[:-1]])
    after = bool(past.shape[0])
    grad, factor_h, factor_r = _gates(opened, before, past if after else before, mask)
    dc = torch.zeros_like(contexts) if grad_c is None else grad_c.clone()
    dq = hs.new_empty(T, B, keys.shape[2])
    d_scores = torch.empty_like(weights)
    d_out = torch.zeros_like(fedback)
    squares, d_score = torch.zeros_like(keys, memory_format=torch.contiguous_format), torch.zeros_like(score)
    scored = torch.empty_like(squares)
    dh, do = torch.zeros_like(h), torch.zeros_like(fed)

    def unread(state: Tensor, t: int) -> Tensor:
        """The gradient that reading the memory passes back to the state that read it."""
        d_weights = torch.bmm(memory, dc[t, :, :, None])[:, :, 0]
        centred = d_weights - (weights[t] * d_weights).sum(1, keepdim=True)
        d = torch.mul(weights[t], centred, out=d_scores[t])
        torch.add(keys, torch.mm(state, query.mT)[:, None], out=scored).tanh_()
        d_score.addmv_(scored.view(-1, scored.shape[2]).mT, d.view(-1))
        scored.square_()
        squares.addcmul_(scored, d[:, :, None])
        opening = d.sum(1, keepdim=True) - torch.bmm(d[:, None], scored)[:, 0]
        return torch.mm(torch.mul(opening, score, out=dq[t]), query)

    for t in range(T - 1, -1, -1):
        dh = dh if grad_h is None else dh + grad_h[t]
        if output is not None:
            do = do if grad_o is None else do + grad_o[t]
            torch.mul(do, 1 - fedback[t] * fedback[t], out=d_out[t])
            if mask is not None:
                d_out[t].mul_(mask[t])
            d_h, d_c = torch.mm(d_out[t], output).split((H, memory.shape[2]), dim=1)
            dc[t].add_(d_c)
            dh = dh + d_h + unread(hs[t], t)
        d_r, d_z, d_n = grad[t].chunk(3, dim=1)
        d_n.mul_(dh)
        d_z.mul_(dh)
        if after:
            d_r.mul_(d_n)
            kept = torch.mm(d_n * factor_r[t], weight[2 * H :])
        else:
            reset = torch.mm(d_n, weight[2 * H :])  # gradient of r * h
            d_r.mul_(reset)
            kept = reset * factor_r[t]
        dh = torch.addmm(dh * factor_h[t] + kept, grad[t, :, : 2 * H], weight[: 2 * H])
        d_fed = torch.mm(grad[t], into)
        if output is None:
            dc[t].add_(d_fed)
            dh = dh + unread(before[t], t)
        else:
            do = d_fed if mask is None else torch.where(mask[t], d_fed, do)
    d_rz, d_n = grad.flatten(0, 1).split((2 * H, H), dim=1)
    r, entered = opened[..., :H].flatten(0, 1), before.flatten(0, 1)
    d_past = d_n * r if after else d_n  # the gradient of the product with U_n, whose input is h or r * h
    multiplied = entered if after else r * entered
    asked, read = (before, contexts) if output is None else (hs, torch.cat([fed[None], fedback[:-1]]))
    both = torch.cat([hs, contexts], dim=2).flatten(0, 1)
    return [
        grad,
        (d_scores.sum(0)[:, :, None] - squares).mul_(score),
        torch.bmm(weights.permute(1, 2, 0), dc.transpose(0, 1)),
        dh,
        do,
        dq.flatten(0, 1).mT @ asked.flatten(0, 1),
        d_score,
        torch.cat([d_rz.mT @ entered, d_past.mT @ multiplied]),
        grad.flatten(0, 1).mT @ read.flatten(0, 1),
        h.new_empty(0) if output is None else d_out.flatten(0, 1).mT @ both,
        d_past.sum(0) if after else h.new_empty(0),
        d_out.sum((0, 1)),
    ]


def _gates(opened: Tensor, before: Tensor, past: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Factors of the loop: [T, B, 3H] for the gradients of the gates, and those from dh and d(r h) to the old state.

    past: what r multiplies.
    """
    r, z, n = opened.chunk(3, dim=2)
    into_z, into_n = (before - n) * z * (1 - z), (1 - z) * (1 - n * n)
    if mask is not None:
        into_z, into_n, z = into_z * mask, into_n * mask, torch.where(mask, z, 1)
    return torch.cat([past * r * (1 - r), into_z, into_n], dim=2), z, r


@_forward.register_fake
def _(
    inputs: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor, score: Tensor,
    weight: Tensor, into: Tensor, output: Tensor | None, real: Tensor | None, mask: Tensor | None,
    bias: Tensor | None = None, output_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    T, B, H = *inputs.shape[:2], h.shape[1]
    widths = H, memory.shape[2], H, 3 * H, keys.shape[1], H
    lengths = T, T, T if output is not None else 0, T, T, T if bias is not None else 0
    return tuple(h.new_empty(n, B, width) for n, width in zip(lengths, widths, strict=True))  # type: ignore[return-value]


@_backward.register_fake
def _(
    grad_h: Tensor | None, grad_c: Tensor | None, grad_o: Tensor | None, hs: Tensor, contexts: Tensor, fedback: Tensor,
    opened: Tensor, weights: Tensor, past: Tensor, keys: Tensor, memory: Tensor, h: Tensor, fed: Tensor, query: Tensor,
    score: Tensor, weight: Tensor, into: Tensor, output: Tensor | None, mask: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    made = [like.new_empty(like.shape) for like in (opened, keys, memory, h, fed, query, score, weight, into)]
    H = h.shape[1]
    last = h.new_empty(0 if output is None else output.shape), h.new_empty(H if past.shape[0] else 0), h.new_empty(H)
    return [*made, *last]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, keys, memory, h, fed, query, score, weight, into, out, _, mask, bias, output_bias = inputs
    ctx.set_materialize_grads(False)
    ctx.given = [out is not None, bias is not None, output_bias is not None]
    ctx.save_for_backward(*output, keys, memory, h, fed, query, score, weight, into, out, mask)


def _gradients(
    ctx: Any, grad_h: Tensor | None, grad_c: Tensor | None, grad_o: Tensor | None, *_: None
) -> tuple[Tensor | None, ...]:
    gradients = _backward(grad_h, grad_c, grad_o, *ctx.saved_tensors)
    output, bias, output_bias = (g if given else None for g, given in zip(gradients[9:], ctx.given, strict=True))
    return *gradients[:9], output, None, None, bias, output_bias


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(inputs: Any, keys: Any, memory: Any, h: Any, *rest: Any, **_: Any) -> int:
    _, query, _, weight, into, output = rest[:6]
    T, B = inputs[:2]
    S, A, M = keys[1], keys[2], memory[2]
    matrices = sum(shape[0] * shape[1] for shape in (query, weight, into, output) if shape is not None)
    return 2 * T * B * (matrices + S * (A + M))


@flops_of(_backward)
def _backward_flops(*shapes: Any, **_: Any) -> int:
    opened, _weights, _past, keys, memory, h, *rest = shapes[6:]
    return 2 * _forward_flops(opened, keys, memory, h, *rest)
