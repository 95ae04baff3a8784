"""Which configuration to measure next. Each strategy is one file; `make` finds it by name."""

from __future__ import annotations

import difflib
from importlib import import_module

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy

DEFAULT = "surrogate"
STRATEGIES = {  # the module and class of each, imported when asked for: some need a large library
    "random": "random.Random",
    "exhaustive": "exhaustive.Exhaustive",
    "local_search": "local_search.LocalSearch",
    "annealing": "annealing.Annealing",
    "evolution": "evolution.Evolution",
    "surrogate": "surrogate.Surrogate",
    "optuna": "optuna_sampler.OptunaSampler",
}
WARM = {"surrogate": "warm.Warm"}  # what takes their place where other devices give hints


def make(
    name: str, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
) -> Strategy:
    """The strategy called `name`, ready to be asked. Raises ValueError with the nearest known name."""
    if name not in STRATEGIES:
        close = difflib.get_close_matches(name, STRATEGIES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no tuning strategy is called {name!r}.{hint} Known: {', '.join(STRATEGIES)}.")
    found = STRATEGIES[name] if hints is None else WARM.get(name, STRATEGIES[name])
    module, _, kind = found.partition(".")
    return getattr(import_module(f"tuner.strategies.{module}"), kind)(space, seed, first, hints)
