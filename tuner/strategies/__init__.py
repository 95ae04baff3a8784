"""Strategies: which configuration to measure next. Each is one module, registered by name."""

from __future__ import annotations

from typing import Any

from nas.errors import UsageError
from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import STRATEGIES

__all__ = ["DEFAULT", "STRATEGIES", "make", "make_or_fall_back"]

DEFAULT = "surrogate"


def make(
    name: str,
    space: TuningSpace,
    seed: int = 0,
    first: tuple[int, ...] = (),
    hints: Hints | None = None,
    **options: Any,
) -> Strategy:
    """The strategy called `name`, ready to be asked.

    With hints from other devices `surrogate` becomes `tuner.strategies._warm.Warm`. Raises ValueError for an unknown
    name, with the nearest valid one, and for an invalid option; ImportError if a library that it needs is missing.
    """
    try:
        made, options = STRATEGIES.find(name), STRATEGIES.check(name, options)
    except UsageError as error:
        raise ValueError(str(error)) from None
    if hints is not None and name == "surrogate":
        from tuner.strategies._warm import Warm as made
    return made(space, seed, first, hints, **options)


def make_or_fall_back(
    name: str | None, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
) -> Strategy:
    """As `make`. Without a name it is the default strategy, or `local_search` if SciPy is missing.

    Raises ValueError as `make` does.
    """
    if name is not None:
        return make(name, space, seed, first, hints)
    try:
        return make(DEFAULT, space, seed, first, hints)
    except ImportError:
        return make("local_search", space, seed, first, hints)
