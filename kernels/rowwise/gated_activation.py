"""Gated activations: one half of a hidden layer, passed through a function g, scales the other half.

Shazeer 2020, "GLU Variants Improve Transformer", https://arxiv.org/abs/2002.05202, eq. 5-6, without the linear maps: y
= g(z) v. Names by g: sigmoid GLU (Dauphin et al. 2017, https://arxiv.org/abs/1612.08083), relu ReGLU, gelu GEGLU, silu
SwiGLU, identity the bilinear layer. gelu_tanh is the approximation of T5 v1.1, quick_gelu is z sigmoid(1.702 z). The
FIRST half of hidden is the gate, as in that paper; with `first` False it is the second half, as in torch's `glu`. The
gradients are dz = dy v g'(z), dv = dy g(z). hidden: [..., 2E], y: [..., E]; N rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows

QUICK = 1.702
CUBE = 0.044715
aten = torch.ops.aten

DEFINITIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "relu": lambda z: z.clamp(min=0),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: z * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + CUBE * z**3))),
    "quick_gelu": lambda z: z / (1 + (-QUICK * z).exp()),
    "silu": lambda z: z / (1 + (-z).exp()),
    "identity": lambda z: z,
}
OWN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "quick_gelu": lambda z: F.silu(QUICK * z) / QUICK,  # keeps one tensor for the backward pass instead of two
    "silu": F.silu,
    "identity": lambda z: z,
}
# dz as a function of dy, z and g(z)
SLOPES: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sigmoid": lambda dy, z, opened: aten.sigmoid_backward(dy, opened),
    "relu": lambda dy, z, opened: aten.threshold_backward(dy, opened, 0),
    "gelu": lambda dy, z, opened: aten.gelu_backward(dy, z),
    "gelu_tanh": lambda dy, z, opened: aten.gelu_backward(dy, z, approximate="tanh"),
    "quick_gelu": lambda dy, z, opened: aten.silu_backward(dy, QUICK * z),
    "silu": lambda dy, z, opened: aten.silu_backward(dy, z),
    "identity": lambda dy, z, opened: dy,
}


def _halves(hidden: Tensor, first: bool) -> tuple[Tensor, Tensor]:
    one, other = hidden.chunk(2, dim=-1)
    return (one, other) if first else (other, one)


def gated_activation_reference(hidden: Tensor, gate: str = "silu", first: bool = True) -> Tensor:
    """The definition; arguments as for `gated_activation`."""
    z, v = _halves(hidden.to(by_rows.wide(hidden)), first)
    return (DEFINITIONS[gate](z) * v).to(hidden.dtype)


def _result(hidden: Tensor) -> Tensor:
    return hidden.new_empty(*hidden.shape[:-1], hidden.shape[-1] // 2)


@operator("gated_activation")
def _forward(hidden: Tensor, gate: str, first: bool, how: str, block: int, num_warps: int) -> Tensor:
    h2, y = by_rows.flat(hidden), _result(hidden)
    if y.numel() and how == "triton":
        from kernels.rowwise import gated_activation_triton

        gated_activation_triton.forward(h2, by_rows.flat(y), gate, first, block, num_warps)
    elif y.numel():
        for part in by_rows.parts(len(h2), block):
            z, v = _halves(h2[part].to(by_rows.wide(hidden)), first)
            by_rows.flat(y)[part] = OWN[gate](z) * v
    return y


@_forward.register_fake
def _(hidden: Tensor, gate: str, first: bool, how: str, block: int, num_warps: int) -> Tensor:
    return _result(hidden)


@operator("gated_activation_backward")
def _backward(dy: Tensor, hidden: Tensor, gate: str, first: bool, how: str, block: int, num_warps: int) -> Tensor:
    d_hidden = torch.empty_like(hidden, memory_format=torch.contiguous_format)
    dy2, h2, dh2 = by_rows.flat(dy), by_rows.flat(hidden), by_rows.flat(d_hidden)
    if dy.numel() and how == "triton":
        from kernels.rowwise import gated_activation_triton

        gated_activation_triton.backward(dy2, h2, dh2, gate, first, block, num_warps)
    elif dy.numel():
        for part in by_rows.parts(len(h2), block):
            z, v = _halves(h2[part].to(by_rows.wide(hidden)), first)
            dz, dv = _halves(dh2[part], first)
            opened, g = OWN[gate](z), dy2[part].to(z.dtype)
            dz.copy_(SLOPES[gate](g * v, z, opened))
            dv.copy_(g * opened)
    return d_hidden


@_backward.register_fake
def _(dy: Tensor, hidden: Tensor, gate: str, first: bool, how: str, block: int, num_warps: int) -> Tensor:
    return torch.empty_like(hidden, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
    hidden, *ctx.settings = inputs
    ctx.save_for_backward(hidden)


def _gradients(ctx: Any, dy: Tensor) -> tuple:
    return _backward(dy, *ctx.saved_tensors, *ctx.settings), None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)


def _torch(hidden: Tensor, gate: str = "silu", first: bool = True) -> Tensor:
    if gate == "sigmoid" and not first:
        return F.glu(hidden)
    z, v = _halves(hidden, first)
    return OWN[gate](z) * v


def _blocked(hidden: Tensor, gate: str = "silu", first: bool = True, *, rows: int) -> Tensor:
    return _forward(hidden, gate, first, "blocked", rows, 0)


def _triton(hidden: Tensor, gate: str = "silu", first: bool = True, *, block: int, num_warps: int) -> Tensor:
    return _forward(hidden, gate, first, "triton", block, num_warps)


def gated_activation(hidden: Tensor, gate: str = "silu", first: bool = True, *, config: Choice | None = None) -> Tensor:
    """hidden: [..., 2E] -> [..., E]. Without `config` the tuned choice for this problem runs.

    gate: the name of g. first: whether the first half is the gate. Raises ValueError if gate is unknown or the width is
    odd.
    """
    if gate not in OWN:
        raise ValueError(f"gate must be one of {', '.join(OWN)}, but got {gate!r}.")
    if hidden.shape[-1] % 2:
        raise ValueError(f"hidden must have two halves, so an even width, but it has {hidden.shape[-1]}.")
    if config is None and tuned.untouched(OPERATION, hidden.device):
        return _torch(hidden, gate, first)
    sizes, flags = (by_rows.count(hidden), hidden.shape[-1] // 2), (by_rows.learns(hidden), gate)
    serving = tuned.implementation(OPERATION, hidden.device.type, hidden.dtype, sizes, flags, config)
    return serving(hidden, gate, first)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    (hidden,) = by_rows.numbers(problem, seed, (problem["rows"], 2 * problem["columns"]))
    return (hidden, problem["gate"]), {}


def _problems(device: str) -> dict[str, Problem]:
    return {
        f"{gate}-{name}": problem
        for gate in ("silu", "gelu")
        for name, problem in by_rows.shapes("gated_activation", gate=gate)(device).items()
    }


def _fits(configuration: Configuration, problem: Problem) -> bool:
    """At most 16 numbers of each half per thread, and no block that is mostly empty."""
    block, threads = int(configuration["block"]), by_rows.WARP * int(configuration["num_warps"])
    return threads <= block <= 16 * threads and (block <= by_rows.power(problem["columns"]) or block == 256)


def _suited(problem: Problem) -> dict[str, Any]:
    """One row or a part of it per program; 8 numbers per thread."""
    block = min(2048, max(256, by_rows.power(problem["columns"])))
    return {"block": block, "num_warps": max(1, block // (8 * by_rows.WARP))}


OPERATION = register(
    Operation(
        name="gated_activation",
        reference=gated_activation_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "blocked": Implementation("blocked", _blocked, by_rows.BLOCKS, default={"rows": 32}, suited=by_rows.cached),
            "triton": Implementation(
                "triton",
                _triton,
                {"block": (256, 512, 1024, 2048, 4096), "num_warps": (1, 2, 4, 8, 16)},
                (_fits,),
                default={"block": 1024, "num_warps": 4},
                suited=_suited,
                refuses=by_rows.needs_gpu,
                files=("kernels.rowwise.gated_activation_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=by_rows.own,
        sizes=("rows", "columns"),
        flags=("gradients", "gate"),
    )
)
