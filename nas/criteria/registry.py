"""The registry of criteria. A criterion is a class: its constructor takes options, a call takes outputs and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from torch import Tensor

from nas.registry import Registry, Thing

registry = Registry("criterion", "nas.criteria")

Criterion = Callable[[Tensor, Tensor], Tensor]


def criterion(name: str) -> Callable[[Thing], Thing]:
    """Register a class as the criterion `name`; the parameters of its constructor are its options."""
    return registry.register(name)


def criteria() -> list[str]:
    """The names of all criteria, sorted."""
    return registry.names()


def make(name: str, options: Mapping[str, Any] | None = None) -> Criterion:
    """The criterion `name` with `options`. Raises UsageError for an unknown name or an invalid option."""
    return registry.make(name, {}, options or {})


@cache
def plain(name: str) -> Criterion:
    """The criterion `name` without options. Raises UsageError for an unknown name."""
    return make(name)
