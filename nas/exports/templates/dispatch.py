"""In place of `kernels.dispatch`: every operation is plain PyTorch, without tables, kernels or operators of its own.

The modules next to it are unchanged. They describe their operations for a tuner; of these descriptions only the code
that runs is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

OF_TORCH = ("sdpa", "torch")  # implementations that are a function of PyTorch
Choice = Configuration = Problem = Value = registered = Any


class Implementation:
    """One way to compute an operation; `call` takes the arguments of the operation."""

    def __init__(self, name: str, call: Callable[..., Any], *_: Any, **__: Any) -> None:
        self.name, self.call = name, call


class Operation:
    """An operation. code: what runs, PyTorch's own function if there is one, else the definition."""

    def __init__(
        self,
        *,
        reference: Callable[..., Any],
        implementations: dict[str, Implementation],
        plain: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        own = next((implementations[name].call for name in OF_TORCH if name in implementations), None)
        self.code = own or plain or reference


class tuned:
    """The choice of an implementation: there is one for each operation."""

    @staticmethod
    def implementation(operation: Operation, *_: Any) -> Callable[..., Any]:
        return operation.code

    @staticmethod
    def untouched(*_: Any) -> bool:
        return False


class work:
    """Formulas that only a tuner reads."""

    attention = whole_scores = chunks = None


class _Left:
    """In place of an operator or a formula that is left out: all decorators of it leave a function as it is."""

    def __call__(self, function: Any, *_: Any, **__: Any) -> Any:
        return function

    def __getattr__(self, name: str) -> Any:
        return self


def operator(name: str) -> Any:
    """A decorator in place of a custom operator, which plain code never calls."""
    return lambda function: _Left()


def flops_of(operator: Any) -> Any:
    """A decorator that leaves a formula as it is."""
    return _Left()


def compiled(definition: Callable[..., Any]) -> Implementation:
    """The definition itself."""
    return Implementation("compiled", definition)


def register(operation: Operation) -> Operation:
    """The operation itself."""
    return operation


def is_plain() -> bool:
    """Always True."""
    return True


def computed(x: torch.Tensor) -> torch.dtype:
    """The dtype of matrix products with x: that of autocast if it is on, else that of x."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def without_autocast(device: str) -> AbstractContextManager[object]:
    """A context in which autocast is off for a type of device."""
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
