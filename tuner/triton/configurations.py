"""Configurations of a kernel: triton.Config, choices, spaces, pruning."""

from __future__ import annotations

import inspect
import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from kernels.dispatch.registry import Choice
from nas.registry import nearest
from tuner.search.row import USERS
from tuner.space import TuningSpace
from tuner.triton.jit_source import functions, source

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # of a triton.Config, not of the kernel
IMPLEMENTATION = USERS


class Named(dict[str, Any]):
    """What a constraint sees: the arguments of a call and a configuration. A name that is missing is explained."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"a constraint asks for {name!r}.{nearest(name, self)} Known: {', '.join(self)}")


def choice_of(values: Mapping[str, Any]) -> Choice:
    """A configuration as a choice. A value that JSON cannot hold, such as a dtype, becomes text."""
    plain = (bool, int, float, str)
    some = {name: value if isinstance(value, plain) else _text(value) for name, value in values.items()}
    return Choice.of(IMPLEMENTATION, some)


def _text(value: Any) -> str:
    """A value as text that is the same in every process; a function as its name and the hash of its code."""
    if not (found := functions([value])) or isinstance(value, tuple | list):
        return str(value)
    return f"{getattr(value, '__qualname__', type(value).__name__)} {source(found[0])}"


def space_of(configurations: Sequence[Mapping[str, Any]]) -> TuningSpace:
    """The given configurations as a space, in their order; a missing parameter has the value "none"."""
    names = list(dict.fromkeys(name for each in configurations for name in each))
    rows = [[dict(choice_of(each).configuration).get(name, "none") for name in names] for each in configurations]
    known = {name: list(dict.fromkeys(row[column] for row in rows)) for column, name in enumerate(names)}
    places = [[known[name].index(row[column]) for column, name in enumerate(names)] for row in rows]
    if len({tuple(row) for row in places}) < len(places):  # equal except for what cannot be compared, such as a hook
        known["number"] = list(range(len(places)))
        places = [[*row, number] for number, row in enumerate(places)]
    return TuningSpace(known, np.array(places))


def config(values: Any) -> Any:
    """A triton.Config from a mapping; a triton.Config is returned unchanged."""
    import triton

    if isinstance(values, triton.Config):
        return values
    options = (*OPTIONS, "pre_hook")
    own = {name: value for name, value in values.items() if name not in options}
    return triton.Config(own, **{name: value for name, value in values.items() if name in options})


@cache
def of_backends() -> frozenset[str]:
    """The options of a launch that only some of Triton's backends know, such as `waves_per_eu`."""
    from triton.backends import backends

    modules = [vars(sys.modules[each.compiler.__module__]) for each in backends.values()]
    options = [value for each in modules for name, value in each.items() if name.endswith("Options")]
    return frozenset(field.name for each in options if is_dataclass(each) for field in fields(each))


def values(config: Any) -> dict[str, Any]:
    """The settings of a triton.Config; one with a hook differs from one without."""
    hook = {} if config.pre_hook is None else {"pre_hook": config.pre_hook}
    return {**config.all_kwargs(), **hook}


def product(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of values."""
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*space.values())]


def pruned(
    configs: Sequence[Any], by: Mapping[str, Any], positional: Mapping[str, Any], named: Mapping[str, Any]
) -> list[Any]:
    """Prune as Triton does: by `early_config_prune`, then keep the `top_k` by `perf_model`, in their original order.

    positional: the positional arguments of the call, by name. named: the others, with `grid` and `warmup`; both
    functions get the same as from Triton. Raises ValueError if no configuration is left or a function returns something
    else, TypeError for a `top_k` that is neither a share nor a count.
    """
    kept = list(configs)
    if prune := by.get("early_config_prune"):
        kept = _left(prune(kept, dict(positional), **named))
    if model := by.get("perf_model"):
        top = by.get("top_k", 1.0)
        count = int(len(configs) * top) if isinstance(top, float) and top <= 1 else top
        if not isinstance(count, int):
            raise TypeError(f"top_k must be a share of at most 1.0 or a whole number, but got {top!r}.")
        if len(kept) > count:
            expected = [_estimate(model(**positional, **named, **each.all_kwargs()), each) for each in kept]
            best = sorted(range(len(kept)), key=lambda number: expected[number])[: max(count, 1)]
            kept = [kept[number] for number in sorted(best)]
    return kept


def _left(found: Any) -> list[Any]:
    """What `early_config_prune` returned. Raises ValueError if it is no list of configurations, or empty."""
    import triton

    if not isinstance(found, Iterable):
        raise ValueError(f"early_config_prune must return a list of configurations, but returned {found!r}.")
    kept = list(found)
    for each in kept:
        if not isinstance(each, triton.Config):
            raise ValueError(f"early_config_prune must return some of its configurations, but returned {each!r}.")
    if not kept:
        raise ValueError("early_config_prune left no configuration, and must leave one.")
    return kept


def _estimate(found: Any, config: Any) -> float:
    """What `perf_model` returned. Raises ValueError if it is no number."""
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"perf_model must return a number, but returned {found!r} for {config}.")
    return number


def interpreted(kernel: Any) -> bool:
    """Whether Triton's interpreter runs the kernel; its times say nothing about the compiled kernel."""
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "InterpretedFunction":
            return True
        kernel = getattr(kernel, "fn", None)
    return False
