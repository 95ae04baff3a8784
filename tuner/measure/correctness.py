"""The correctness check: a choice is timed only if its output and gradients equal those of the definition.

The definition is computed in float64 on new random inputs; if it would fill the memory, the operation's lean
implementation replaces it. The tolerance follows from the dtype of the problem and from the error of the definition
itself in that dtype. A second run starts with uninitialised memory filled with NaN, which finds outputs that are not
written in full. No run may change its inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernels.dispatch.registry import Operation, Problem

OWN = 8.0  # times the error of the definition itself in that dtype, which is large if numbers cancel out
CHANGED = "it changed its inputs"
# The tolerance, in units of the dtype's precision times the typical size of the result. Sums are long in float32; in
# the 16-bit types they hold a handful of roundings to the storage type.
ROUNDINGS = {torch.float64: 256, torch.float32: 64, torch.bfloat16: 8, torch.float16: 8}


@dataclass(frozen=True)
class Trial:
    """One call of a problem, and its correct results. All lists are in the order of the outputs or of the inputs."""

    arguments: tuple[tuple[Any, ...], dict[str, Any]]  # positional, by name
    weights: list[Tensor | None]  # of the outputs in the loss; None for one that is not floating
    outputs: list[Any]
    gradients: list[Tensor | None]
    own: tuple[list[float], list[float]]  # error of the definition in the problem's dtype: of outputs, of gradients

    def forward(self, call: Callable[..., Any]) -> list[Any]:
        """The outputs of `call`."""
        args, kwargs = self.arguments
        return _flat(call(*args, **kwargs))

    def backward(self, outputs: list[Any]) -> list[Tensor | None]:
        """The gradients of the inputs that require one."""
        return _gradients(outputs, _leaves(*self.arguments), self.weights)

    def timed(self, call: Callable[..., Any]) -> Callable[[], object]:
        """The call to time: forward and backward pass, with as little else as possible."""
        args, kwargs = self.arguments
        leaves = _leaves(args, kwargs)
        if not leaves or all(gradient is None for gradient in self.gradients):
            return partial(call, *args, **kwargs)
        outputs = _flat(call(*args, **kwargs))
        weighted = [
            (place, weight.to(outputs[place]))
            for place, weight in enumerate(self.weights)
            if weight is not None and outputs[place].requires_grad
        ]
        places, weights = [place for place, _ in weighted], [weight for _, weight in weighted]
        single = places == [0] and len(outputs) == 1

        def both() -> object:
            found = call(*args, **kwargs)
            outputs = [found] if single and isinstance(found, Tensor) else _flat(found)
            return torch.autograd.grad([outputs[n] for n in places], leaves, weights, allow_unused=True)

        return both


def trial(operation: Operation, problem: Problem, seed: int) -> Trial:
    """New inputs for `problem`, and the definition's results for them."""
    args, kwargs = operation.inputs(problem, seed)
    definition = definition_of(operation, problem)
    generator = torch.Generator().manual_seed(seed)
    exact_args, exact_kwargs = _copied((args, kwargs), torch.float64)
    weights: list[Tensor | None] = []
    outputs = _flat(definition(*exact_args, **exact_kwargs))
    for output in outputs:
        floating = isinstance(output, Tensor) and output.is_floating_point()
        weights.append(torch.randn(output.shape, generator=generator).to(output) if floating else None)
    gradients = _gradients(outputs, _leaves(exact_args, exact_kwargs), weights)
    exact = [_detached(output) for output in outputs]
    found = _flat(definition(*args, **kwargs))
    own = _worst(found, exact), _worst(_gradients(found, _leaves(args, kwargs), weights), gradients)
    return Trial((args, kwargs), weights, exact, gradients, own)


def call_forward_and_backward(operation: Operation, problem: Problem, call: Callable[..., Any]) -> None:
    """Call it and its backward pass; the results are not used."""
    args, kwargs = operation.inputs(problem, 0)
    outputs = [each for each in _flat(call(*args, **kwargs)) if isinstance(each, Tensor) and each.requires_grad]
    if outputs:
        leaves = _leaves(args, kwargs)
        torch.autograd.grad(outputs, leaves, [torch.ones_like(each) for each in outputs], allow_unused=True)


def definition_of(operation: Operation, problem: Problem) -> Callable[..., Any]:
    """The definition, or its replacement if its own results would fill the memory."""
    name = operation.lean(problem)
    if name is None:
        return operation.reference
    lean = operation.implementations[name]
    return partial(lean.call, **lean.default)


def differences(made: Trial, call: Callable[..., Any], dtype: torch.dtype) -> str | None:
    """How `call` differs from the definition; None if it does not."""
    before = _copied(made.arguments)
    for poisoned in (False, True):
        with _poisoned_memory() if poisoned else _unchanged_memory():
            outputs = made.forward(call)
            reason = _compared("output", outputs, made.outputs, dtype, made.own[0])
            gradients = [] if reason else made.backward(outputs)
        if not _same(before, made.arguments):
            return CHANGED
        where = " where memory was not zero before" if poisoned else ""
        if reason := reason or _compared("gradient", gradients, made.gradients, dtype, made.own[1]):
            return reason + where
    return None


def dtype_of(problem: Problem) -> torch.dtype:
    """The dtype of a problem as torch's object."""
    return getattr(torch, problem.dtype)


def _gradients(outputs: list[Any], leaves: list[Tensor], weights: list[Tensor | None]) -> list[Tensor | None]:
    pairs = [
        (output, weight.to(output))
        for output, weight in zip(outputs, weights, strict=False)
        if weight is not None and isinstance(output, Tensor) and output.requires_grad
    ]
    if not pairs:
        return [None] * len(leaves)
    some, weighted = zip(*pairs, strict=True)
    return list(torch.autograd.grad(some, leaves, weighted, allow_unused=True))


def _worst(found: list[Any], expected: list[Any]) -> list[float]:
    """The largest error of each result of the definition in the dtype of the problem."""
    worst = []
    for one, other in zip(found, expected, strict=True):
        both = isinstance(one, Tensor) and isinstance(other, Tensor) and other.is_floating_point() and other.numel()
        apart = (one.detach().to(torch.float64) - other.detach()).abs() if both else torch.zeros(1)
        worst.append(apart[apart.isfinite()].max().item() if apart.isfinite().any() else 0.0)
    return worst


def _compared(what: str, found: list[Any], expected: list[Any], dtype: torch.dtype, own: list[float]) -> str | None:
    if len(found) != len(expected):
        return f"{len(found)} {what}s came instead of {len(expected)}"
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        name = what if len(found) == 1 else f"{what} {place}"
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if reason := _apart(one.detach(), other.detach(), dtype, own[place]):
                return f"{name} {reason}"
        elif isinstance(other, Tensor) and what == "gradient":  # no gradient means zero
            if bool(other.any()):
                return f"{name} is missing"
        elif isinstance(one, Tensor) and what == "gradient":
            if bool(one.any()):
                return f"{name} should be none"
        elif one != other:
            return f"{name} is {one!r} instead of {other!r}"
    return None


def _apart(found: Tensor, expected: Tensor, dtype: torch.dtype, own: float) -> str | None:
    if found.shape != expected.shape:
        return f"has shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if not expected.is_floating_point():
        return None if torch.equal(found.to(expected.dtype), expected) else "differs"
    if not found.is_floating_point():
        return f"is of {found.dtype}"
    if not found.numel():
        return None
    found = found.to(torch.float64)
    plain = torch.where(expected.isfinite(), expected, 0.0)
    precision = max(torch.finfo(dtype).eps, torch.finfo(torch.float64).eps) * ROUNDINGS.get(dtype, 64)
    allowed = precision * (plain.abs() + plain.square().mean().sqrt()) + OWN * own
    fits = (found - expected).abs() <= allowed
    fits |= (found == expected) | (
        found.isnan() & expected.isnan()
    )  # infinities, and where the definition itself is NaN
    if bool(fits.all()):
        return None
    worst = (found - expected).abs().nan_to_num(torch.inf).where(~fits, -1.0).argmax()
    count = int((~fits).sum())
    return (
        f"differs at {count} of {fits.numel()} places, most where it is {found.flatten()[worst].item():.6g} "
        f"instead of {expected.flatten()[worst].item():.6g}"
    )


def _flat(value: Any) -> list[Any]:
    return [each for each in pytree.tree_leaves(value) if each is not None]


def _leaves(args: Any, kwargs: Any) -> list[Tensor]:
    return [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.requires_grad]


def _copied(arguments: Any, dtype: torch.dtype | None = None) -> Any:
    """Copies of the arguments as leaves of autograd, floating ones in `dtype`; strides are kept."""

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        made = value.detach().clone()
        if dtype is not None and made.is_floating_point():
            made = made.to(dtype)
        return made.requires_grad_(value.requires_grad)

    return pytree.tree_map(copy, arguments)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _same(one: Any, other: Any) -> bool:
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor))


def warm_up() -> None:
    """Load the parts of torch that the check needs, so that the first check does not take longer than the others."""
    with _poisoned_memory():
        x = torch.ones(1, requires_grad=True)
        torch.autograd.grad(x.sum(), x)


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """`torch.empty` gives NaN inside the block; torch does this only in deterministic mode."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextmanager
def _unchanged_memory() -> Iterator[None]:
    yield
