"""Checks the arguments of `tuner.tune`: a mistake is found where the kernel is decorated, not when it is called.

Each message says which argument is wrong, what it must be, what it is, and if possible how to write it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nas.errors import UsageError
from nas.registry import nearest
from tuner.search.effort import EFFORTS
from tuner.strategies.registry import STRATEGIES

FUNCTIONS = ("pre_hook", "post_hook", "do_bench")
SWITCHES = ("use_cuda_graph", "cache_results", "check", "deterministic", "isolate")
NUMBERS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
PRUNERS = ("early_config_prune", "perf_model", "top_k")
MOST_SEED = 2**63 - 1  # that torch accepts


def check(given: Mapping[str, Any]) -> None:
    """given: the arguments by name, iterators as tuples. Raises ValueError that names the wrong one."""
    _check_together(given)
    for name in ("key", "reset_to_zero", "restore_value"):
        if given[name] is not None or name == "key":
            _check_names(name, given[name])
    for name in FUNCTIONS:
        if given[name] is not None and not callable(given[name]):
            raise ValueError(f"{name} must be a function, but got {given[name]!r}.")
    for name in SWITCHES:
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} must be True or False, but got {given[name]!r}.")
    _check_pruners(given["prune_configs_by"] or {})
    if given["space"] is not None:
        _check_space(given["space"])
        _check_default(given["default"] or {}, given["space"])
    _check_numbers(given)
    _check_choices(given)


def listed(name: str, values: Any) -> tuple[Any, ...] | None:
    """The values of an iterable argument; None stays. Raises ValueError if it is none."""
    if values is None:
        return None
    if hasattr(values, "arg_names"):
        raise ValueError("tuner.tune needs arguments: write @tuner.tune(space={...}, key=[...]) above @triton.jit.")
    if name == "configs" and isinstance(values, Mapping):
        raise ValueError(f"configs must be a list of configurations, but got {values!r}. To try all values: space=.")
    if isinstance(values, str) or not isinstance(values, Iterable):
        what = "functions" if name == "constraints" else "configurations"
        raise ValueError(f"{name} must be a list of {what}, but got {short(values)}: write it in brackets.")
    return tuple(values)


def read_once(values: Any) -> Any:
    """The values of an iterator, which can be read once only, and of a set by name, because its order differs between
    processes, which would not find each other's results. Anything else as it is."""
    if isinstance(values, set | frozenset):
        return tuple(sorted(values, key=str))
    return tuple(values) if isinstance(values, Iterator) else values


def short(value: Any) -> str:
    """A value in a message: a function by its name."""
    return str(getattr(value, "__name__", None) or repr(value))


def _check_together(given: Mapping[str, Any]) -> None:
    space, configs, constraints = given["space"], given["configs"], given["constraints"]
    if configs is not None and space is not None:
        raise ValueError("give either configs or space, not both.")
    if space is None and (given["default"] is not None or constraints):
        raise ValueError("default and constraints go with space; with configs the first is the default.")
    if space is not None and given["prune_configs_by"]:
        raise ValueError("prune_configs_by goes with configs; with space give constraints.")
    for number, each in enumerate(constraints):
        if not callable(each):
            raise ValueError(f"constraints[{number}] must be a function of a configuration, but is {each!r}.")


def _check_names(what: str, names: Any) -> None:
    if isinstance(names, str):
        raise ValueError(f"{what} must be a list of names, but got {names!r}: write [{names!r}].")
    if not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{what} must be a list of names of arguments, but got {short(names)}.")


def _check_pruners(by: Any) -> None:
    if not isinstance(by, Mapping):
        raise ValueError(f"prune_configs_by must be a mapping with {_known(PRUNERS)}, but got {short(by)}.")
    for name, value in by.items():
        if name not in PRUNERS:
            raise ValueError(f"prune_configs_by has no {name!r}.{nearest(name, PRUNERS)} Known: {_known(PRUNERS)}.")
        if name != "top_k" and value is not None and not callable(value):
            raise ValueError(f"{name} of prune_configs_by must be a function, but got {value!r}.")


def _check_space(space: Any) -> None:
    if not isinstance(space, Mapping):
        raise ValueError(f"space must be a mapping, such as {{'BLOCK': [64, 128]}}, but got {short(space)}.")
    for name, values in space.items():
        if not isinstance(name, str):
            raise ValueError(f"space must name its parameters, but has {name!r}.")
        if isinstance(values, str) or not isinstance(values, Sequence):
            if isinstance(values, set | frozenset):
                way = "a set has no order, and the first value is the default"
            else:
                way = f"write [{values!r}]" if isinstance(values, int | float | str) else "write them in brackets"
            raise ValueError(f"space must give a list of values for {name}, but got {values!r}: {way}.")
        if not values:
            raise ValueError(f"space gives no value for {name}, and must give one.")
        try:
            repeats = len(set(values)) < len(values)
        except TypeError:
            raise ValueError(f"space must give single values for {name}, but got {list(values)!r}.") from None
        for value in values:
            _check_option(name, value)
        if repeats:
            raise ValueError(f"space must give each value of {name} once, but got {list(values)!r}.")


def _check_default(default: Any, space: Mapping[str, Sequence[Any]]) -> None:
    if not isinstance(default, Mapping):
        raise ValueError(f"default must be a mapping, such as {{'BLOCK': 64}}, but got {short(default)}.")
    for name, value in default.items():
        if name not in space:
            raise ValueError(
                f"default names {name!r}, which is not in space.{nearest(name, space)} Known: {_known(space)}."
            )
        if value not in space[name]:
            raise ValueError(f"default must give {name} one of {list(space[name])!r}, but gives {value!r}.")


def _check_numbers(given: Mapping[str, Any]) -> None:
    for name in ("limit", "budget", "warmup", "rep"):
        value = given[name]
        fits = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        if name != "budget":
            fits = fits and math.isfinite(value) and value >= 0 and (value > 0 or name == "warmup")
        if value is not None and not fits:
            unit = "milliseconds" if name in ("warmup", "rep") else "seconds"
            least = {"budget": "", "warmup": " of at least 0"}.get(name, " above 0")
            raise ValueError(f"{name} must be a number of {unit}{least}, but got {value!r}.")
    seed = given["seed"]
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed must be a whole number that is not negative and below 2^63, but got {seed!r}.")


def _check_choices(given: Mapping[str, Any]) -> None:
    effort, strategy, store, clock = (given[name] for name in ("effort", "strategy", "store", "clock"))
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise ValueError(f"effort must be one of {_known(EFFORTS)}, but got {effort!r}.")
    if strategy is not None:
        _check_strategy(strategy)
    if not isinstance(store, str | os.PathLike | None):
        raise ValueError(f"store must be a folder, a database file or a URL, but got {store!r}.")
    if clock is not None and not all(callable(getattr(clock, name, None)) for name in ("now", "time")):
        raise ValueError(f"clock must have the methods now and time, but got {clock!r}.")


def _check_strategy(strategy: Any) -> None:
    if not isinstance(strategy, str):
        raise ValueError(f"strategy must be the name of a tuning strategy, but got {short(strategy)}.")
    try:
        STRATEGIES.find(strategy)
    except UsageError as error:
        raise ValueError(f"strategy: {error}") from None


def check_configurations(configs: Sequence[Any]) -> None:
    """Raises ValueError if one is no triton.Config and no mapping, or gives several values to a parameter."""
    import triton

    for number, each in enumerate(configs):
        if not isinstance(each, Mapping | triton.Config):
            raise ValueError(f"configs[{number}] must be a triton.Config or a mapping of values, but is {short(each)}.")
        values = each if isinstance(each, Mapping) else each.all_kwargs()
        for name, value in values.items():
            _check_option(name, value)
            if isinstance(value, list):
                way = f"a configuration has one value of each parameter. To try all: space={{{name!r}: {value!r}}}"
                raise ValueError(f"configs[{number}] gives {name} a list, {value!r}: {way}.")


def _check_option(name: str, value: Any) -> None:
    """Whether the value of a number of warps and the like is a number."""
    if name in NUMBERS and value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} must be a whole number, but got {value!r}.")


def _known(names: Iterable[str]) -> str:
    return ", ".join(names)
