"""Every strategy by name, found by itself: a module of this package registers what it defines with `@strategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nas.registry import Registry, Thing
from nas.strategies.contract import SearchSpace, Strategy

registry = Registry("strategy", "nas.strategies", given=("space", "seed", "objectives", "evaluate"))


def strategy(name: str) -> Callable[[Thing], Thing]:
    """Register a strategy class as `name`; its further keyword-only parameters are its options."""
    return registry.register(name)


def strategies() -> list[str]:
    """The names of all strategies, sorted."""
    return registry.names()


def make(name: str, space: SearchSpace, seed: int, objectives: int, /, **options: Any) -> Strategy:
    """The strategy `name` on `space` for so many objectives. Raises UsageError for an unknown name or option."""
    return registry.make(name, {"space": space, "seed": seed, "objectives": objectives}, options)
