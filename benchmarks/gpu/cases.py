"""The cases of `benchmarks.gpu`: operations at published shapes, and the peers that each is compared with.

The shapes come from the papers and libraries whose figures are the targets: FlashAttention-2 and -3 (16k tokens, width
2,048, heads of 128), Triton's tutorials (rows of 4k to 32k), Liger-Kernel (SwiGLU, cross-entropy), retention (B8 H32).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.dispatch import registry
from kernels.dispatch.registry import Operation, Problem, Value

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Call = Callable[[], Any]
Peers = Callable[[Arguments], Mapping[str, Callable[..., Any]]]


@dataclass(frozen=True)
class Bar:
    """A target. kind: how the figure is computed, see `_figure` in `__main__`. value: the target. against: a peer.
    device: part of the name of the only device that the bar applies to."""

    kind: str
    value: float
    against: str = ""
    device: str = ""


@dataclass(frozen=True)
class Case:
    """A case. peers: by name, calls that compute the same from the arguments of the operation. amount: floating-point
    operations or bytes of one call. unit: TFLOP/s or GB/s."""

    part: str
    problem: Problem
    peers: Peers
    amount: float
    unit: str
    bars: tuple[Bar, ...] = ()
    name: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The shape in words."""
        return self.name or " ".join(f"{name}={value}" for name, value in self.problem.sizes)

    @property
    def learns(self) -> bool:
        return bool(self.problem["gradients"])


def compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under torch.compile, compiled for this shape only."""
    return torch.compile(call, dynamic=False)


def optional(path: str) -> Any | None:
    """`module:name`; None if it is not installed, or does not load on this machine."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception:  # a library for another device may raise anything
        return None


def _found(**peers: Callable[..., Any] | None) -> dict[str, Callable[..., Any]]:
    return {name: peer for name, peer in peers.items() if peer is not None}


def _by(backend: SDPBackend) -> Callable[..., Tensor]:
    def call(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=q.shape[2] > 1, enable_gqa=q.shape[1] != k.shape[1]
            )

    return call


SDPA = {
    "sdpa flash": _by(SDPBackend.FLASH_ATTENTION),
    "sdpa cudnn": _by(SDPBackend.CUDNN_ATTENTION),
    "sdpa efficient": _by(SDPBackend.EFFICIENT_ATTENTION),
    "sdpa math": _by(SDPBackend.MATH),
}


def _attention_peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
    def sdpa(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    flash = optional("flash_attn:flash_attn_func")

    def flash_attn(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return flash(*(x.transpose(1, 2) for x in (q, k, v)), causal=True).transpose(1, 2)  # type: ignore[misc]

    long = arguments[0][0].shape[2] > 4096  # the matrix of all scores would not fit
    backends = {name: call for name, call in SDPA.items() if not (long and name == "sdpa math")}
    return _found(sdpa=sdpa, compiled=compiled(sdpa), flash_attn=flash_attn if flash else None) | backends


def attention(device: str, small: bool) -> list[Case]:
    """FlashAttention's sweep: forward, causal, heads of 128, 16,384 tokens in all, 2,048 wide."""
    operation = registry.operation("attention")
    lengths, tokens, width, heads = ([64, 128], 128, 32, 2) if small else ([2**n for n in range(9, 15)], 2**14, 128, 16)
    bars = (Bar("best_peer", 1.0), Bar("triton_amount", 477.0, device="H100"))
    cases = []
    for length in lengths:
        batch = max(1, tokens // length)
        sizes = (batch, heads, heads, length, length, width, length)
        problem = operation.problem(device, _half(device), sizes, _flags(operation, causal=True))
        flops = 4 * batch * heads * length**2 * width / 2
        label = f"length={length} batch={batch} heads={heads} width={width}"
        some = bars if length == lengths[-1] else bars[:1]
        cases.append(Case("attention", problem, _attention_peers, flops, "TFLOP/s", some, label))
    return cases


ROWWISE: dict[str, tuple[Callable[..., Any], str]] = {  # PyTorch's own, Liger's
    "rms_norm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), "liger_kernel.ops.rms_norm:LigerRMSNormFunction"),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        "liger_kernel.ops.layer_norm:LigerLayerNormFunction",
    ),
    "softmax": (lambda x: x.softmax(-1), "liger_kernel.ops.softmax:LigerSoftmaxFunction"),
}


def rowwise(device: str, small: bool) -> list[Case]:
    """Forward over 2^26 numbers of half precision, in rows of 4k to 32k."""
    columns, numbers = ([64, 128], 2**10) if small else ([4096, 8192, 16384, 32768], 2**26)
    cases = []
    for name in ROWWISE:
        for width in columns:
            operation = registry.operation(name)
            sizes = numbers // width, width
            problem = operation.problem(device, _half(device), sizes, _flags(operation))
            amount = 2 * numbers * torch.finfo(getattr(torch, problem.dtype)).bits / 8
            peers = _rowwise_peers(name)
            cases.append(
                Case("rowwise", problem, peers, amount, "GB/s", (Bar("of_copy", 0.9),), f"{name} columns={width}")
            )
    return cases


def _rowwise_peers(name: str) -> Peers:
    own, path = ROWWISE[name]

    def peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
        liger = optional(path)

        def call(*args: Tensor, **options: Any) -> Any:
            extra = {"rms_norm": (1e-6,), "layer_norm": (1e-5,)}.get(name, ())
            return liger.apply(*args, *extra)  # type: ignore[union-attr]

        def eager(*args: Tensor, **options: Any) -> Any:
            return own(*args)

        def copy(x: Tensor, *others: Tensor, **options: Any) -> Tensor:
            return x.clone()

        return _found(eager=eager, compiled=compiled(own), copy=copy, liger=call if liger else None)

    return peers


def swiglu(device: str, small: bool) -> list[Case]:
    """Forward and backward, 32,768 wide."""
    rows, columns = (4, 64) if small else (4096, 32768)
    operation = registry.operation("gated_activation")
    flags = _flags(operation, gradients=True, gate="silu")
    problem = operation.problem(device, _half(device), (rows, columns), flags)

    def eager(hidden: Tensor, *others: Any, **options: Any) -> Tensor:
        a, b = hidden.chunk(2, dim=-1)
        return F.silu(a) * b

    def peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
        liger = optional("liger_kernel.ops.swiglu:LigerSiLUMulFunction")

        def call(hidden: Tensor, *others: Any, **options: Any) -> Tensor:
            return liger.apply(*hidden.chunk(2, dim=-1))  # type: ignore[union-attr]

        return _found(eager=eager, compiled=compiled(eager), liger=call if liger else None)

    amount = (3 + 5) * rows * columns * torch.finfo(getattr(torch, problem.dtype)).bits / 8
    return [Case("swiglu", problem, peers, amount, "GB/s", (Bar("times", 2.4, "eager"),))]


def cross_entropy(device: str, small: bool) -> list[Case]:
    """Forward and backward over 131,072 classes."""
    rows, classes = (8, 512) if small else (8192, 131072)
    operation = registry.operation("cross_entropy")
    problem = operation.problem(device, _half(device), (rows, classes), _flags(operation, gradients=True))

    def eager(logits: Tensor, targets: Tensor, *others: Any, **options: Any) -> Tensor:
        return F.cross_entropy(logits, targets)

    def peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
        liger = optional("liger_kernel.transformers.functional:liger_cross_entropy")

        def call(logits: Tensor, targets: Tensor, *others: Any, **options: Any) -> Tensor:
            return liger(logits.clone(), targets)  # type: ignore[misc]  # it writes the gradient over the logits

        return _found(eager=eager, compiled=compiled(eager), liger=call if liger else None)

    amount = 3 * rows * classes * torch.finfo(getattr(torch, problem.dtype)).bits / 8
    return [Case("cross_entropy", problem, peers, amount, "GB/s", (Bar("times", 2.5, "eager"),))]


def linear_attention(device: str, small: bool) -> list[Case]:
    """Forward, causal, against exact attention of the same sizes."""
    batch, heads, width = (1, 2, 32) if small else (8, 32, 128)
    cases = []
    for length in (64, 128) if small else (1024, 2048, 4096, 8192, 16384):
        sizes = (batch, heads, length, width, width)
        operation = registry.operation("linear_attention")
        problem = operation.problem(device, _half(device), sizes, _flags(operation, causal=True))
        bars = (Bar("times", 1.0, "sdpa flash"),) if small or length >= 4096 else ()
        flops = 4.0 * batch * heads * length * width**2
        cases.append(Case("linear_attention", problem, _linear_peers, flops, "TFLOP/s", bars))
    return cases


def _linear_peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
    """The peers of linear attention. Exact attention is a different function: only its time is compared."""
    fla = optional("fla.ops.linear_attn:chunk_linear_attn")

    def call(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        out, _ = fla(*(x.transpose(1, 2) for x in (q, k, v)), scale=1.0, normalize=True)  # type: ignore[misc]
        return out.transpose(1, 2)

    return _found(**{"sdpa flash": SDPA["sdpa flash"]}, fla=call if fla else None)


def decode(device: str, small: bool) -> list[Case]:
    """One token after 32,768 others, with four query heads for each head of keys."""
    sizes = (1, 4, 1, 128, 32) if small else (8, 32, 8, 32768, 128)
    operation = registry.operation("decode_attention")
    problem = operation.problem(device, _half(device), sizes, _flags(operation))
    batch, _, groups, length, width = sizes
    amount = 2 * batch * groups * length * width * torch.finfo(getattr(torch, problem.dtype)).bits / 8

    def sdpa(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def copy(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return k.clone()  # reads the keys and writes them: the same number of bytes as reading keys and values

    def peers(arguments: Arguments) -> Mapping[str, Callable[..., Any]]:
        return {"sdpa": sdpa, "compiled": compiled(sdpa), "copy": copy}

    return [Case("decode", problem, peers, amount, "GB/s", (Bar("of_copy", 0.9),))]


def _flags(operation: Operation, **on: Value) -> tuple[Value, ...]:
    """The flags of an operation: those in `on`, the others off."""
    off = {"bias": "none"} if operation.name == "attention" else {}
    return tuple({**dict.fromkeys(operation.flags, False), **off, **on}.values())


def _half(device: str) -> str:
    return "bfloat16" if device == "cuda" else "float32"


PARTS: dict[str, Callable[[str, bool], list[Case]]] = {
    "attention": attention,
    "rowwise": rowwise,
    "swiglu": swiglu,
    "cross_entropy": cross_entropy,
    "linear_attention": linear_attention,
    "decode": decode,
}
INCOMPARABLE = {"copy", "sdpa flash of linear_attention"}  # peers with a different result


def comparable(case: Case, peer: str) -> bool:
    """Whether a peer computes the same as the operation."""
    return peer not in INCOMPARABLE and f"{peer} of {case.part}" not in INCOMPARABLE
