"""The correctness check: a choice is timed only if its output and gradients equal those of the definition.

The definition is computed in float64 on new random inputs; if it would fill the memory, the operation's lean
implementation replaces it. The tolerance (`tuner.measure.tolerance`) follows from the dtype of the problem, the length
of its sums and the error of the definition in that dtype, which is sampled (`tuner.measure.rounding`).

A choice runs on two sets of inputs. The second set is written over the first, so that a result that is cached by
address is found, and its numbers at the ends of rows and columns are larger, so that an omitted end is found. That run
starts with uninitialised memory filled with NaN, which finds outputs that are not written in full. Inputs, and the
outputs of hand-written kernels, lie between guard zones. No run may change its inputs, or the state of the random
numbers unless the definition does. A kernel that declares itself deterministic must give the same bits again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernels.dispatch.registry import Operation, Problem
from tuner.measure.guards import Guards, guarded_allocations
from tuner.measure.rounding import NOISE, Rounding
from tuner.measure.tolerance import STORED, Error, difference, error, growth

CHANGED = "it changed its inputs"
OUTSIDE = "it writes outside of a tensor"
SPOILT = (CHANGED, OUTSIDE)  # after these the inputs cannot be used again
LARGER = 2.0  # times, the numbers at the ends of the second set; more would saturate softmax, so that gradients cancel
GRADIENTS = 4.0  # times the error of outputs in 16-bit types: kernels use the rounded outputs, and terms cancel out
LONG = 0.3  # seconds of the processor; a definition that takes longer is computed on one set of inputs only
SAMPLES = 4  # computations with random rounding; one of a definition that takes a tenth of LONG, none beyond LONG


@dataclass(frozen=True)
class Trial:
    """One call of a problem, and its correct results. All lists are in the order of the outputs or of the inputs.

    own: the errors of outputs and of gradients that the definition has by rounding to the problem's dtype. length: of
    the longest sum. draws: whether the definition changes the state of random numbers. guards: around the arguments.
    second: the same call with other numbers.
    """

    arguments: tuple[tuple[Any, ...], dict[str, Any]]  # positional, by name
    weights: list[Tensor | None]  # of the outputs in the loss; None for one that is not floating
    outputs: list[Any]
    gradients: list[Tensor | None]
    own: tuple[list[Error], list[Error]]
    length: int = 1
    draws: bool = False
    guards: Guards = field(default_factory=Guards)
    second: Trial | None = None

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
    began = time.process_time()  # the same however busy the machine is
    guards = Guards()
    definition = definition_of(operation, problem)
    made = _computed(definition, pytree.tree_map(guards.copy, operation.inputs(problem, seed)), seed)
    seconds = time.process_time() - began
    second = None
    if seconds < LONG:
        samples = SAMPLES if seconds < LONG / 10 else 1
        made = _with_rounding(made, definition, dtype_of(problem), samples, seed)
        # Far from the seeds that a session uses, so that the comparison of the finalists has other numbers.
        other = _with_larger_ends(operation.inputs(problem, seed + 2**20))
        if _alike(made.arguments, other):
            second = _computed(definition, other, seed + 2**20)
            second = _with_rounding(second, definition, dtype_of(problem), samples, seed)
    return replace(made, guards=guards, second=second)


def _computed(definition: Callable[..., Any], arguments: Any, seed: int) -> Trial:
    """The definition's results for given arguments, and its own errors in their dtype."""
    state = _random_state(arguments)
    generator = torch.Generator().manual_seed(seed)
    exact_args, exact_kwargs = _copied(arguments, torch.float64)
    weights: list[Tensor | None] = []
    outputs = _flat(definition(*exact_args, **exact_kwargs))
    for output in outputs:
        floating = isinstance(output, Tensor) and output.is_floating_point()
        weights.append(torch.randn(output.shape, generator=generator).to(output) if floating else None)
    gradients = _gradients(outputs, _leaves(exact_args, exact_kwargs), weights)
    exact = [_detached(output) for output in outputs]
    made = Trial(arguments, weights, exact, gradients, ([], []), _length(arguments))
    return replace(
        made,
        own=_errors(made, definition, arguments),
        draws=not _equal_states(state, _random_state(arguments)),
    )


def _with_rounding(made: Trial, definition: Callable[..., Any], dtype: torch.dtype, samples: int, seed: int) -> Trial:
    """`made` with the largest errors of several computations with random rounding, if they are larger than its own."""
    arguments = _copied(made.arguments, torch.float64)
    unit = torch.finfo(dtype).eps * growth(dtype, made.length) / NOISE
    outputs, gradients = ([[each] for each in own] for own in made.own)
    for number in range(samples):
        with Rounding(_device(arguments), seed + number, operands=dtype not in STORED):
            errors = _errors(made, definition, arguments)
        for known, own in zip((outputs, gradients), errors, strict=True):
            for several, each in zip(known, own, strict=True):
                several.append(each.times(unit))
    return replace(made, own=([*map(Error.largest, outputs)], [*map(Error.largest, gradients)]))


def _device(arguments: Any) -> torch.device:
    """The device of the first tensor."""
    return next(each.device for each in pytree.tree_leaves(arguments) if isinstance(each, Tensor))


def _length(arguments: Any) -> int:
    """The length of the longest sum: along the last axis of an input, or along all others."""
    tensors = [each for each in pytree.tree_leaves(arguments) if isinstance(each, Tensor) and each.ndim]
    widths = [max(each.shape[-1], each.numel() // max(each.shape[-1], 1)) for each in tensors]
    return max(widths, default=1)


def _with_larger_ends(arguments: Any) -> Any:
    """Numbers of both signs are larger at the ends of the last two axes; other numbers may have a meaning."""

    def larger(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return value
        plain = value.detach()
        if not (plain.min() < 0 < plain.max()):
            return value
        ends = torch.zeros_like(plain, dtype=torch.bool)
        for axis in range(max(plain.ndim - 2, 0), plain.ndim):
            ends.select(axis, -1).fill_(True)
        plain.copy_(torch.where(ends, LARGER * plain, plain))
        return value

    return pytree.tree_map(larger, arguments)


def _alike(one: Any, other: Any) -> bool:
    """Whether two calls differ only in the numbers in their tensors."""
    pairs = list(zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=False))
    if any(isinstance(each, Tensor) and torch._debug_has_internal_overlap(each) == 1 for each, _ in pairs):
        return False  # it cannot be written
    same = len(pytree.tree_leaves(one)) == len(pytree.tree_leaves(other))
    return same and all(
        (a.shape, a.dtype) == (b.shape, b.dtype) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        for a, b in pairs
    )


def _random_state(arguments: Any) -> list[Tensor]:
    """The states of the generators of random numbers of the devices in use."""
    devices = {each.device for each in pytree.tree_leaves(arguments) if isinstance(each, Tensor) and each.is_cuda}
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(each) for each in sorted(devices, key=str))]


def _equal_states(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


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


def differences(
    made: Trial,
    call: Callable[..., Any],
    dtype: torch.dtype,
    *,
    guarded: bool = False,
    deterministic: bool = False,
) -> str | None:
    """How `call` differs from the definition; None if it does not.

    guarded: the tensors that it makes get guard zones; for hand-written kernels. deterministic: it must give the same
    bits twice.
    """
    reason = _on_one_set(made, made, call, dtype, guarded, poisoned=False)
    if reason is None and deterministic:
        reason = _repeated(made, call)
    if reason is not None:
        return reason
    if made.second is None:
        return _on_one_set(made, made, call, dtype, guarded, poisoned=True)
    first = _copied(made.arguments)
    _write(made.arguments, made.second.arguments)
    try:
        return _on_one_set(made, made.second, call, dtype, guarded, poisoned=True)
    finally:
        _write(made.arguments, first)


def _on_one_set(
    made: Trial, expected: Trial, call: Callable[..., Any], dtype: torch.dtype, guarded: bool, *, poisoned: bool
) -> str | None:
    """Run on the arguments of `made`, whose numbers are those of `expected`."""
    before, state = _copied(made.arguments), _random_state(made.arguments)
    with ExitStack() as stack:
        stack.enter_context(_poisoned_memory() if poisoned else nullcontext())
        guards = stack.enter_context(guarded_allocations()) if guarded else Guards()
        outputs = made.forward(call)
        reason = _compared("output", outputs, expected.outputs, dtype, expected.own[0], made.length)
        gradients = [] if reason else _gradients(outputs, _leaves(*made.arguments), expected.weights)
    if not _same(before, made.arguments):
        return CHANGED
    if made.guards.written() or guards.written():
        return OUTSIDE
    if not made.draws and not _equal_states(state, _random_state(made.arguments)):
        return "it changed the state of torch's random numbers"
    reason = reason or _compared("gradient", gradients, expected.gradients, dtype, expected.own[1], made.length)
    return reason and reason + (" where memory was not zero before" if poisoned else "")


def _repeated(made: Trial, call: Callable[..., Any]) -> str | None:
    """Whether two more runs differ in any bit."""
    runs = []
    for _ in range(2):
        outputs = made.forward(call)
        runs.append([*map(_detached, outputs), *made.backward(outputs)])
    same = all(
        torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))
        for one, other in zip(*runs, strict=True)
        if isinstance(one, Tensor) and isinstance(other, Tensor)
    )
    return None if same else "it gives other bits when it runs again, but is declared deterministic"


def _write(arguments: Any, numbers: Any) -> None:
    """Write the numbers of other arguments into the same memory."""
    for one, other in zip(pytree.tree_leaves(arguments), pytree.tree_leaves(numbers), strict=True):
        if isinstance(one, Tensor):
            one.detach().copy_(other.detach())


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


def _errors(made: Trial, definition: Callable[..., Any], arguments: Any) -> tuple[list[Error], list[Error]]:
    """The errors of the outputs and of the gradients that the definition computes from `arguments`."""
    args, kwargs = arguments
    outputs = _flat(definition(*args, **kwargs))
    gradients = _gradients(outputs, _leaves(args, kwargs), made.weights)
    return [*map(_error, outputs, made.outputs)], [*map(_error, gradients, made.gradients)]


def _error(found: Any, exact: Any) -> Error:
    both = isinstance(found, Tensor) and isinstance(exact, Tensor) and exact.is_floating_point() and exact.numel()
    return error(found, exact) if both else Error()


def _compared(
    what: str, found: list[Any], expected: list[Any], dtype: torch.dtype, own: list[Error], length: int
) -> str | None:
    slack = GRADIENTS if what == "gradient" and dtype in STORED else 1.0
    if len(found) != len(expected):
        return f"{len(found)} {what}s came instead of {len(expected)}"
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        name = what if len(found) == 1 else f"{what} {place}"
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if reason := _apart(one.detach(), other.detach(), dtype, own[place], length, slack):
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


def _apart(found: Tensor, expected: Tensor, dtype: torch.dtype, own: Error, length: int, slack: float) -> str | None:
    if found.shape != expected.shape:
        return f"has shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if not expected.is_floating_point():
        return None if torch.equal(found.to(expected.dtype), expected) else "differs"
    if not found.is_floating_point():
        return f"is of {found.dtype}"
    return difference(found, expected, dtype, own, length=length, slack=slack)


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
