"""The registry of strategies: every module of this package registers the strategies that it defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nas.registry import Registry, Thing
from nas.strategies.contract import Evaluate, SearchSpace, Strategy
from nas.strategies.earlier import Earlier

registry = Registry(
    "strategy",
    "nas.strategies",
    given=("space", "seed", "objectives", "evaluate"),
    offered=("trials", "earlier"),
)


def strategy(name: str) -> Callable[[Thing], Thing]:
    """Register a strategy class as `name`. Its other keyword parameters are its options."""
    return registry.register(name)


def strategies() -> list[str]:
    """The names of all strategies, sorted."""
    return registry.names()


def make(
    name: str,
    space: SearchSpace,
    seed: int,
    objectives: int,
    evaluate: Evaluate | None = None,
    trials: int | None = None,
    earlier: Sequence[Earlier] = (),
    /,
    **options: Any,
) -> Strategy:
    """The strategy `name` on `space` for `objectives` objectives, all minimised.

    evaluate: the objectives of a point that need no training. trials: how many are planned. earlier: results of earlier
    studies, for a strategy that learns from them. Raises UsageError for an
    unknown name or an invalid option.
    """
    given = {"space": space, "seed": seed, "objectives": objectives, "evaluate": evaluate, "trials": trials}
    return registry.make(name, given | {"earlier": earlier}, options)
