"""The recurrence of an LSTM; the part of the gates that comes from the input is already computed for all positions.

Hochreiter & Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with the forget gate of Gers et al. 2000: [i;
f; g; o] = a_t + U h_{t-1}, c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t). T time, N
directions (each with its own weights), B batch, H width of the state.

Each position needs the previous one, so there is a loop, and the loop should do as little as possible. The backward
pass computes everything that does not depend on the running gradient for all positions at once, also the gradient of U.
Its loop does one product and five small operations; plain autograd does about thirty. Forward and backward at T 256, B
8, H 64, float32, one core of a shared CPU, best of 5: 19 ms, and 90 ms for the definition under autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator
from kernels.recurrence.steps import over


def lstm_reference(
    gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The definition, one position after the other; arguments as for `lstm`."""

    def step(states: tuple[Tensor, Tensor], a: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        h, c = states
        i, f, g, o = (a + h @ weight.mT).chunk(4, dim=2)  # each [N, B, H]
        new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        out = o.sigmoid() * new.tanh()
        return (out, new) if seen is None else (torch.where(seen, out, h), torch.where(seen, new, c))

    hs, cs = over(step, (h, c), (gates, mask))
    return hs, cs


def lstm(gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """All h and all c: two of [T, N, B, H], in the dtype of `h`.

    gates: [T, N, B, 4H], a_t, in the order i, f, g, o. weight: [N, 4H, H], U. h and c: [N, B, H], the previous state.
    mask: [T, N, B, 1], False where the state stays unchanged. All but the mask in float32 or wider: a sum over a long
    past would otherwise stop growing.
    """
    if is_plain():
        return lstm_reference(gates, weight, h, c, mask)
    hs, cs, _ = _forward(gates, weight, h, c, mask)
    return hs, cs


def fused_lstm(
    x: Tensor, weight_in: Tensor, bias: Tensor, weight: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """torch's own layer: x: [B, T, C] -> [B, T, N * H] and the last h and c, [N, B, H]; a second direction reads
    backwards.

    weight_in: [N * 4H, C] and bias: [N * 4H] make the gates; weight: [N, 4H, H], h and c: [N, B, H]. On a CPU it has a
    kernel for all positions in float32. Forward at N 1, one core of a shared CPU, best of 7, with `lstm` in brackets:
    1.8 ms (23) at T 256, B 8, C 64; 70 ms (109) at T 64, B 32, C 256; a single position 8.2 ms (2.7) at B 16, C 650. In
    training at T 1024, B 1, C 256 a position takes 54 us (116). It keeps `workspace` numbers for the backward pass, 2.6
    times as many.
    """
    if is_plain():
        return _layer(x, weight_in, bias, weight, h, c)
    flat: list[Tensor] = []
    for ins, U, b in zip(weight_in.chunk(len(weight)), weight, bias.chunk(len(weight)), strict=True):
        flat += [ins, U, b, b.new_zeros(1).expand_as(b)]
    out, h, c = torch.lstm(x, (h, c), flat, True, 1, 0.0, torch.is_grad_enabled(), len(weight) == 2, True)
    return out, h, c


def _layer(
    x: Tensor, weight_in: Tensor, bias: Tensor, weight: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `fused_lstm`, by the definition."""
    gates = F.linear(x, weight_in, bias).unflatten(2, (len(weight), -1)).permute(1, 2, 0, 3)  # [T, N, B, 4H]
    hs, cs = lstm_reference(_turned(gates), weight, h, c)
    return _turned(hs).permute(2, 0, 1, 3).flatten(2), hs[-1], cs[-1]


def _turned(steps: Tensor) -> Tensor:
    """[T, N, B, X] with the time of a second direction reversed."""
    return steps if steps.shape[1] == 1 else torch.stack([steps[:, 0], steps[:, 1].flip(0)], dim=1)


def workspace(rows: int, width: int, state: int, directions: int) -> int:
    """About how many numbers `fused_lstm` keeps for the backward pass, not counting its input.

    rows: B * T, width: C, state: H. The memory is oneDNN's: gates and their gradients, then seven states per position,
    in rows of whole cache lines. A second direction has its own input and output. About 20 kB are fixed.
    """
    line = 16  # numbers of four bytes
    padded, wide = (-(-numbers // line) * line for numbers in (state, width))
    each = state + 8 * state + 7 * padded + (2 * (wide - padded) if directions == 2 else 0)
    return rows * (directions * each + (directions - 1) * (width + state)) + directions * 5120


# Custom operators: the compiler treats each as one step; otherwise it would unroll the loop over all T positions.
@operator("lstm")
def _forward(gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """All h, all c, and the gates after their activation functions: [T, N, B, 4H]."""
    T, N, B, H = *gates.shape[:3], h.shape[2]
    opened = gates.clone(memory_format=torch.contiguous_format)
    hs, cs, squashed = h.new_empty(T, N, B, H), c.new_empty(T, N, B, H), torch.empty_like(c)
    both = opened[..., : 2 * H].unbind(0)
    i, f, g, o = (gate.unbind(0) for gate in opened.chunk(4, dim=3))
    turned = weight.mT
    for t, (a, next_h, next_c) in enumerate(zip(opened.unbind(0), hs.unbind(0), cs.unbind(0), strict=True)):
        a.baddbmm_(h, turned)
        both[t].sigmoid_()
        g[t].tanh_()
        o[t].sigmoid_()
        torch.mul(f[t], c, out=next_c).addcmul_(i[t], g[t])
        torch.mul(o[t], torch.tanh(next_c, out=squashed), out=next_h)
        if mask is not None:
            torch.where(mask[t], next_c, c, out=next_c)
            torch.where(mask[t], next_h, h, out=next_h)
        h, c = next_h, next_c
    return hs, cs, opened


@operator("lstm_backward")
def _backward(
    grad_h: Tensor | None, grad_c: Tensor | None, opened: Tensor, weight: Tensor, h: Tensor, c: Tensor,
    first_h: Tensor, first_c: Tensor, mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of gates, weight and the initial state; h and c: [T, N, B, H] of the forward pass."""
    before_h, before_c = torch.cat([first_h[None], h[:-1]]), torch.cat([first_c[None], c[:-1]])
    i, f, g, o = opened.chunk(4, dim=3)
    squashed = (c if mask is None else torch.addcmul(before_c * f, i, g)).tanh()
    into_c = o * (1 - squashed * squashed)  # factor from dh to dc
    # Factors from dc to the gates i, f and g, and from dh to o; the loop turns them into gradients in place.
    grad = torch.cat([g * i * (1 - i), before_c * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], dim=3)
    if mask is not None:
        into_c, grad, f = into_c * mask, grad * mask, torch.where(mask, f, 1)
    dh, dc = torch.zeros_like(first_h), torch.zeros_like(first_c)
    for t in range(h.shape[0] - 1, -1, -1):
        dh = dh if grad_h is None else dh + grad_h[t]
        dc = dc if grad_c is None else dc + grad_c[t]
        dc = torch.addcmul(dc, dh, into_c[t])
        grad[t].mul_(torch.cat([dc, dc, dc, dh], dim=2))
        past = torch.bmm(grad[t], weight)
        dh = past if mask is None else torch.where(mask[t], past, past + dh)
        dc = dc * f[t]
    whole = grad.transpose(0, 1).flatten(1, 2)  # [N, T * B, 4H]
    return grad, whole.mT @ before_h.transpose(0, 1).flatten(1, 2), dh, dc


@_forward.register_fake
def _(gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    every = h.new_empty(*gates.shape[:3], h.shape[2])
    return every, torch.empty_like(every), gates.new_empty(gates.shape)


@_backward.register_fake
def _(grad_h: Any, grad_c: Any, opened: Tensor, weight: Tensor, h: Any, c: Any, *first: Any) -> tuple[Tensor, ...]:
    return tuple(like.new_empty(like.shape) for like in (opened, weight, *first[:2]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, weight, first_h, first_c, mask = inputs
    hs, cs, opened = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(opened, weight, hs, cs, first_h, first_c, mask)


def _gradients(ctx: Any, grad_h: Tensor | None, grad_c: Tensor | None, _opened: None) -> tuple[Tensor | None, ...]:
    return *_backward(grad_h, grad_c, *ctx.saved_tensors), None


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(gates: Any, weight: Any, *_: Any, **__: Any) -> int:
    T, N, B, _width = gates
    return 2 * T * B * N * weight[1] * weight[2]


@flops_of(_backward)
def _backward_flops(_grad_h: Any, _grad_c: Any, opened: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * _forward_flops(opened, weight)


@flops_of(torch.ops.aten.mkldnn_rnn_layer)
def _fused_flops(x: Any, weight_in: Any, weight: Any, *_: Any, **__: Any) -> int:
    T, B, _width = x
    return sum(2 * T * B * rows * columns for rows, columns in (weight_in, weight))


@flops_of(torch.ops.aten.mkldnn_rnn_layer_backward)
def _fused_backward_flops(x: Any, weight_in: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * _fused_flops(x, weight_in, weight)
