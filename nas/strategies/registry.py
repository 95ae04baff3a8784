"""Every strategy by name, found by itself: a module of this package registers what it defines with `@strategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nas.catalogue import Catalogue, Class
from nas.strategies.contract import SearchSpace, Strategy

catalogue = Catalogue("strategy", "nas.strategies", given=("seed", "objectives"))


def strategy(name: str) -> Callable[[Class], Class]:
    """Register a strategy class as `name`; its further keyword-only parameters are its options."""
    return catalogue.register(name)


def strategies() -> list[str]:
    """The names of all strategies, sorted."""
    return catalogue.names()


def make(name: str, space: SearchSpace, seed: int, objectives: int, /, **options: Any) -> Strategy:
    """The strategy `name` on `space` for so many objectives. Raises UsageError for an unknown name or option."""
    return catalogue.make(name, {"space": space, "seed": seed, "objectives": objectives}, options)
