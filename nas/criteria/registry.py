"""The registry of criteria. A criterion is a class: its constructor takes options, a call takes outputs and targets.

`target_kind` of the class says which targets it takes. A criterion without it takes any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

from torch import Tensor

from nas.registry import Registry, Thing

registry = Registry("criterion", "nas.criteria")

Criterion = Callable[[Tensor, Tensor], Tensor]
TargetKind = Literal["classes", "numbers"]  # classes: logits [N, V] and classes [N]; numbers: two tensors of one shape


def criterion(name: str) -> Callable[[Thing], Thing]:
    """Register a class as the criterion `name`; the parameters of its constructor are its options."""
    return registry.register(name)


def criteria() -> list[str]:
    """The names of all criteria, sorted."""
    return registry.names()


def make(name: str, options: Mapping[str, Any] | None = None) -> Criterion:
    """The criterion `name` with `options`. Raises UsageError for an unknown name or an invalid option."""
    return registry.make(name, {}, options or {})


def takes(name: str, kind: TargetKind | None) -> bool:
    """Whether the criterion `name` takes targets of this kind; True if either of them is not declared.

    A subclass declares its own kind, because it may convert the targets. Raises UsageError for an unknown name.
    """
    declared = vars(registry.find(name)).get("target_kind")
    return kind is None or declared is None or declared == kind


@cache
def plain(name: str) -> Criterion:
    """The criterion `name` without options. Raises UsageError for an unknown name."""
    return make(name)
