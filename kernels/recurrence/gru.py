"""The recurrence of a gated recurrent unit; the part that comes from the input is already computed for all positions.

Cho et al. 2014, https://arxiv.org/abs/1406.1078, section 2.3, where z is the share of the state that is KEPT: r =
sigmoid(a_r + U_r h), z = sigmoid(a_z + U_z h), h_t = (1 - z) n + z h, where h is the previous state and n is one of
  after:  tanh(a_n + r * (U_n h + b)), the reset gate after the product (`torch.nn.GRU`, cuDNN);
  before: tanh(a_n + U_n (r * h)), the reset gate before the product, as in the paper.
T time, N directions (each with its own weights), B batch, H width of the state.

Each position needs the previous one, so there is a loop, and the loop should do as little as possible (see
`kernels.recurrence.lstm`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain
from kernels.dispatch.operators import flops_of, operator
from kernels.recurrence.steps import over


def gru_reference(inputs: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, mask: Tensor | None = None) -> Tensor:
    """The definition, one position after the other; arguments as for `gru`."""
    H = h.shape[2]

    def step(states: tuple[Tensor], a: Tensor, seen: Tensor | None) -> tuple[Tensor]:
        (h,) = states
        U_rz, U_n = weight[:, : 2 * H].mT, weight[:, 2 * H :].mT
        r, z = (a[..., : 2 * H] + h @ U_rz).sigmoid().chunk(2, dim=2)
        past = (r * h) @ U_n if bias is None else r * (h @ U_n + bias[:, None])
        new = (1 - z) * (a[..., 2 * H :] + past).tanh() + z * h
        return (new if seen is None else torch.where(seen, new, h),)

    (hs,) = over(step, (h,), (inputs, mask))
    return hs


def gru(inputs: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, mask: Tensor | None = None) -> Tensor:
    """All h: [T, N, B, H], in the dtype of `h`.

    inputs: [T, N, B, 3H], a, in the order r, z, n. weight: [N, 3H, H], U. bias: [N, H], b, with the reset gate after
    the product; None with the reset gate before it. h: [N, B, H], the previous state. mask: [T, N, B, 1], False where
    the state stays unchanged. All but the mask in float32 or wider.
    """
    if is_plain():
        return gru_reference(inputs, weight, bias, h, mask)
    if bias is not None and mask is None and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _states(inputs, weight, bias, h)
    return _forward(inputs, weight, bias, h, mask)[0]


def _states(inputs: Tensor, weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    """All h, with the reset gate after the product, if no gradient is needed: nothing else is kept."""
    H = h.shape[2]
    hs = h.new_empty(*inputs.shape[:3], H)
    added = F.pad(bias, (2 * H, 0))[:, None]  # [N, 1, 3H]
    turned = weight.mT.contiguous()
    step = h.new_empty(*h.shape[:2], 3 * H)
    gates, past = step.split((2 * H, H), dim=2)
    r, z = gates.chunk(2, dim=2)
    a_rz, a_n = (part.unbind(0) for part in inputs.split((2 * H, H), dim=3))
    for opened, a, new in zip(a_rz, a_n, hs.unbind(0), strict=True):
        torch.baddbmm(added, h, turned, out=step)
        gates.add_(opened).sigmoid_()
        torch.addcmul(a, r, past, out=new).tanh_().lerp_(h, z)
        h = new
    return hs


# Custom operators: the compiler treats each as one step; otherwise it would unroll the loop over all T positions.
@operator("gru")
def _forward(
    inputs: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """All h; r, z and n: [T, N, B, 3H]; and U_n h + b: [T, N, B, H], empty if the reset gate comes first."""
    T, N, B, H = *inputs.shape[:3], h.shape[2]
    opened = inputs.clone(memory_format=torch.contiguous_format)
    hs = h.new_empty(T, N, B, H)
    past = h.new_empty((T if bias is not None else 0, N, B, H))
    U_rz, U_n = weight[:, : 2 * H].mT, weight[:, 2 * H :].mT
    for t, (a, new) in enumerate(zip(opened.unbind(0), hs.unbind(0), strict=True)):
        gates, n = a.split((2 * H, H), dim=2)
        gates.add_(torch.bmm(h, U_rz)).sigmoid_()
        r, z = gates.chunk(2, dim=2)
        if bias is None:
            n.add_(torch.bmm(r * h, U_n)).tanh_()
        else:
            torch.baddbmm(bias[:, None], h, U_n, out=past[t])
            n.addcmul_(r, past[t]).tanh_()
        torch.lerp(n, h, z, out=new)
        if mask is not None:
            torch.where(mask[t], new, h, out=new)
        h = new
    return hs, opened, past


@operator("gru_backward")
def _backward(
    grad_h: Tensor, hs: Tensor, opened: Tensor, past: Tensor, weight: Tensor, h: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of inputs, weight, bias (empty without one) and the initial state; h: [N, B, H] is that state."""
    T, H = hs.shape[0], hs.shape[3]
    before = torch.cat([h[None], hs[:-1]])
    r, z, n = opened.chunk(3, dim=3)
    after = bool(past.shape[0])
    into_n = (1 - z) * (1 - n * n)  # factor from dh to the argument of tanh
    into_r = (past if after else before) * r * (1 - r)
    into_z = (before - n) * z * (1 - z)
    kept = z if mask is None else torch.where(mask, z, 1)
    if mask is not None:
        into_n, into_z = into_n * mask, into_z * mask
    if after:  # everything is linear in dh
        grad = torch.cat([into_n * into_r, into_z, into_n], dim=3)
        reaching = torch.cat([grad[..., : 2 * H], into_n * r], dim=3)  # factors of the gradients of the products with U
    else:
        grad, reaching = torch.cat([into_r, into_z, into_n], dim=3), None
    dh = torch.zeros_like(h)
    for t in range(T - 1, -1, -1):
        dh = dh + grad_h[t]
        if reaching is not None:
            repeated = dh.repeat(1, 1, 3)
            grad[t].mul_(repeated)
            dh = torch.baddbmm(dh * kept[t], reaching[t].mul_(repeated), weight)
            continue
        d_r, d_z, d_n = grad[t].chunk(3, dim=2)
        d_n.mul_(dh)
        d_z.mul_(dh)
        reset = torch.bmm(d_n, weight[:, 2 * H :])  # gradient of r * h
        d_r.mul_(reset)
        dh = torch.baddbmm(dh * kept[t] + reset * r[t], grad[t, ..., : 2 * H], weight[:, : 2 * H])
    if reaching is not None:
        whole = _flat(reaching)
        return grad, whole.mT @ _flat(before), whole[..., 2 * H :].sum(1), dh
    d_rz, d_n = _flat(grad).split((2 * H, H), dim=2)
    d_weight = torch.cat([d_rz.mT @ _flat(before), d_n.mT @ _flat(r * before)], dim=1)
    return grad, d_weight, h.new_empty(0), dh


def _flat(steps: Tensor) -> Tensor:
    """[T, N, B, X] -> [N, T * B, X]."""
    return steps.transpose(0, 1).flatten(1, 2)


@_forward.register_fake
def _(inputs: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    T, N, B, H = *inputs.shape[:3], h.shape[2]
    past = h.new_empty((T if bias is not None else 0, N, B, H))
    return h.new_empty(T, N, B, H), inputs.new_empty(inputs.shape), past


@_backward.register_fake
def _(grad_h: Any, hs: Any, opened: Tensor, past: Tensor, weight: Tensor, h: Tensor, *_: Any) -> tuple[Tensor, ...]:
    bias = h.new_empty((h.shape[0], h.shape[2]) if past.shape[0] else (0,))
    return opened.new_empty(opened.shape), weight.new_empty(weight.shape), bias, h.new_empty(h.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, weight, bias, h, mask = inputs
    ctx.biased = bias is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, weight, h, mask)


def _gradients(ctx: Any, grad_h: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    inputs, weight, bias, h = _backward(grad_h, *ctx.saved_tensors)
    return inputs, weight, bias if ctx.biased else None, h, None


_forward.register_autograd(_gradients, setup_context=_keep)


@flops_of(_forward)
def _forward_flops(inputs: Any, weight: Any, *_: Any, **__: Any) -> int:
    T, N, B, _width = inputs
    return 2 * T * B * N * weight[1] * weight[2]


@flops_of(_backward)
def _backward_flops(_grad_h: Any, _hs: Any, opened: Any, _past: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * _forward_flops(opened, weight)
