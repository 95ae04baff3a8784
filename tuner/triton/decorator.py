"""`@tuner.tune(...)`: replaces `triton.autotune` for a user's own kernels.

    @tuner.tune(space={"BLOCK": [256, 512, 1024], "num_warps": [2, 4, 8]}, key=["size"])
    @triton.jit
    def scale(x_ptr, y_ptr, size, BLOCK: tl.constexpr): ...

It takes the arguments of `triton.autotune` with the same meaning, and stores its results by device, driver, torch and
Triton, source of the kernel, key and dtypes. The first configuration is used until another is faster beyond the noise.
Nothing is tuned inside the capture of a CUDA graph, a trace of torch.compile, with NAS_TUNING=off, or inside a test
unless NAS_TUNING=on; stored results are used there too. `kernel.explain(...)` says which configuration a call uses and
why.

A mistake in the arguments is found where the kernel is decorated, not when it is called. Each message says which
argument is wrong, what it must be, what it is, and if possible how to write it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nas.errors import UsageError
from nas.registry import nearest
from tuner.measure.measure import Clock
from tuner.search.effort import EFFORTS
from tuner.search.results import STORAGE, Results, results_at
from tuner.strategies.registry import STRATEGIES
from tuner.triton import configurations
from tuner.triton.bench import Injected, Timer
from tuner.triton.kernel import Options, TunedKernel

FUNCTIONS = ("pre_hook", "post_hook", "do_bench")
SWITCHES = ("use_cuda_graph", "cache_results", "check", "deterministic", "isolate")
NUMBERS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
PRUNERS = ("early_config_prune", "perf_model", "top_k")
MOST_SEED = 2**63 - 1  # that torch accepts


def tune(
    configs: Sequence[Any] | None = None,
    key: Sequence[str] = (),
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
    *,
    space: Mapping[str, Sequence[Any]] | None = None,
    constraints: Iterable[Callable[[Mapping[str, Any]], bool]] = (),
    default: Mapping[str, Any] | None = None,
    effort: str = "quick",
    budget: float | None = None,
    strategy: str | None = None,
    seed: int = 0,
    store: str | Path | None = None,
    check: bool = True,
    deterministic: bool = False,
    limit: float | None = None,
    isolate: bool = True,
    clock: Clock | None = None,
) -> Callable[[Any], TunedKernel]:
    """Decorate a `triton.jit` kernel. It is tuned again for every new value of the arguments named in `key`.

    The arguments up to `cache_results` are those of `triton.autotune`; `cache_results=False` remembers results in this
    process only. configs: triton.Config or mappings; the first is the default. space: instead of configs, the values of
    each parameter, which may include `num_warps` and the like; the default is the first value of each, or `default`.
    constraints: conditions on a configuration; each is called with the configuration and the arguments of the call, by
    name. effort: none, quick (at most 40 configurations) or full (at most 250). budget: seconds for one key; by default
    120 for quick and 3600 for full. strategy: a name from `tuner.strategies`. store: a SQLite file or a URL; by default
    $NAS_STORAGE, else a file in the user's data folder. check: reject a configuration whose result differs from the
    default's. deterministic: also reject one whose result is not the same in every bit when it runs again. limit:
    seconds that the compilation of a configuration may take, and its first run; by default 60, and 180 for full.
    isolate: compile and run each configuration in another process first, which may hang or crash. clock: see
    `tuner.measure.measure`. Raises ValueError that names the wrong argument.
    """
    configs, constraints = _listed("configs", configs), _listed("constraints", constraints) or ()
    key, reset_to_zero, restore_value = map(_read_once, (key, reset_to_zero, restore_value))
    _check(locals())
    options = Options(
        configs=None if configs is None else tuple(map(configurations.config, configs)),
        space=space,
        constraints=constraints,
        default=dict(default or {}),
        key=tuple(key),
        prune=dict(prune_configs_by or {}),
        reset_to_zero=tuple(reset_to_zero or ()),
        restore_value=tuple(restore_value or ()),
        pre_hook=pre_hook,
        post_hook=post_hook,
        timer=_timer(do_bench, warmup, rep, use_cuda_graph),
        clock=clock,
        results=results_at(store) if cache_results else Results(),
        effort=effort,
        budget=budget,
        strategy=strategy,
        seed=seed,
        check=check,
        deterministic=deterministic,
        limit=limit,
        isolate=isolate,
        place=str(store or os.environ.get(STORAGE, "")),
    )
    return lambda fn: _decorated(fn, options)


def _decorated(fn: Any, options: Options) -> TunedKernel:
    """Raises ValueError if `fn` is no kernel of Triton."""
    if isinstance(fn, TunedKernel):
        raise ValueError(f"{fn.name} is decorated with tuner.tune twice: give all options to one.")
    if not hasattr(fn, "arg_names"):
        raise ValueError(f"tuner.tune decorates a kernel, but got {_short(fn)}: put @triton.jit below @tuner.tune.")
    return TunedKernel(fn, options)


def _timer(
    do_bench: Callable[..., Any] | None, warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Timer | None:
    """The benchmark that Triton's arguments ask for; None for our own."""
    if do_bench is not None:
        return Injected(do_bench)
    if warmup is None and rep is None and not use_cuda_graph:
        return None
    import triton.testing

    if use_cuda_graph:
        return Injected(partial(triton.testing.do_bench_cudagraph, rep=rep or 100))
    return Injected(partial(triton.testing.do_bench, warmup=warmup or 25, rep=rep or 100))


def _listed(name: str, values: Any) -> tuple[Any, ...] | None:
    """The values of an iterable argument; None stays. Raises ValueError if it is none."""
    if values is None:
        return None
    if hasattr(values, "arg_names"):
        raise ValueError("tuner.tune needs arguments: write @tuner.tune(space={...}, key=[...]) above @triton.jit.")
    if name == "configs" and isinstance(values, Mapping):
        raise ValueError(f"configs must be a list of configurations, but got {values!r}. To try all values: space=.")
    if isinstance(values, str) or not isinstance(values, Iterable):
        what = "functions" if name == "constraints" else "configurations"
        raise ValueError(f"{name} must be a list of {what}, but got {_short(values)}: write it in brackets.")
    return tuple(values)


def _read_once(values: Any) -> Any:
    """The values of an iterator, which can be read once only, and of a set by name, because its order differs between
    processes, which would not find each other's results. Anything else as it is."""
    if isinstance(values, set | frozenset):
        return tuple(sorted(values, key=str))
    return tuple(values) if isinstance(values, Iterator) else values


def _check(given: Mapping[str, Any]) -> None:
    """given: the arguments by name. Raises ValueError that names the wrong one."""
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
    if space is not None:
        _check_space(space)
        _check_default(given["default"] or {}, space)
    _check_configurations(configs or ())
    _check_numbers(given)
    effort, store, clock = (given[name] for name in ("effort", "store", "clock"))
    if not isinstance(effort, str) or effort not in EFFORTS:
        raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, but got {effort!r}.")
    if given["strategy"] is not None:
        _check_strategy(given["strategy"])
    if not isinstance(store, str | os.PathLike | None):
        raise ValueError(f"store must be a database file or a URL, but got {store!r}.")
    if clock is not None and not all(callable(getattr(clock, name, None)) for name in ("now", "time")):
        raise ValueError(f"clock must have the methods now and time, but got {clock!r}.")


def _check_names(what: str, names: Any) -> None:
    if isinstance(names, str):
        raise ValueError(f"{what} must be a list of names, but got {names!r}: write [{names!r}].")
    if not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{what} must be a list of names of arguments, but got {_short(names)}.")


def _check_pruners(by: Any) -> None:
    if not isinstance(by, Mapping):
        raise ValueError(f"prune_configs_by must be a mapping with {', '.join(PRUNERS)}, but got {_short(by)}.")
    for name, value in by.items():
        if name not in PRUNERS:
            known = f"{nearest(name, PRUNERS)} Known: {', '.join(PRUNERS)}."
            raise ValueError(f"prune_configs_by has no {name!r}.{known}")
        if name != "top_k" and value is not None and not callable(value):
            raise ValueError(f"{name} of prune_configs_by must be a function, but got {value!r}.")


def _check_space(space: Any) -> None:
    if not isinstance(space, Mapping):
        raise ValueError(f"space must be a mapping, such as {{'BLOCK': [64, 128]}}, but got {_short(space)}.")
    for name, values in space.items():
        if not isinstance(name, str):
            raise ValueError(f"space must name its parameters, but has {name!r}.")
        if isinstance(values, str) or not isinstance(values, Sequence):
            way = f"write [{values!r}]" if isinstance(values, int | float | str) else "write them in brackets"
            if isinstance(values, set | frozenset):
                way = "a set has no order, and the first value is the default"
            raise ValueError(f"space must give a list of values for {name}, but got {values!r}: {way}.")
        if not values:
            raise ValueError(f"space gives no value for {name}, and must give one.")
        try:
            repeats = len({(type(value), value) for value in values}) < len(values)
        except TypeError:
            raise ValueError(f"space must give single values for {name}, but got {list(values)!r}.") from None
        for value in values:
            _check_option(name, value)
        if repeats:
            raise ValueError(f"space must give each value of {name} once, but got {list(values)!r}.")


def _check_default(default: Any, space: Mapping[str, Sequence[Any]]) -> None:
    if not isinstance(default, Mapping):
        raise ValueError(f"default must be a mapping, such as {{'BLOCK': 64}}, but got {_short(default)}.")
    for name, value in default.items():
        if name not in space:
            known = f"{nearest(name, space)} Known: {', '.join(space)}."
            raise ValueError(f"default names {name!r}, which is not in space.{known}")
        if value not in space[name]:
            raise ValueError(f"default must give {name} one of {list(space[name])!r}, but gives {value!r}.")


def _check_configurations(configs: Sequence[Any]) -> None:
    """Raises ValueError if one is no triton.Config and no mapping, or gives several values to a parameter."""
    import triton

    for number, each in enumerate(configs):
        if not isinstance(each, Mapping | triton.Config):
            what = f"configs[{number}] must be a triton.Config or a mapping of values"
            raise ValueError(f"{what}, but is {_short(each)}.")
        for name, value in (each if isinstance(each, Mapping) else each.all_kwargs()).items():
            _check_option(name, value)
            if isinstance(value, list):
                way = f"a configuration has one value of each parameter. To try all: space={{{name!r}: {value!r}}}"
                raise ValueError(f"configs[{number}] gives {name} a list, {value!r}: {way}.")


def _check_option(name: str, value: Any) -> None:
    """Whether the value of a number of warps and the like is a number."""
    if name in NUMBERS and value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} must be a whole number, but got {value!r}.")


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


def _check_strategy(strategy: Any) -> None:
    if not isinstance(strategy, str):
        raise ValueError(f"strategy must be the name of a tuning strategy, but got {_short(strategy)}.")
    try:
        STRATEGIES.find(strategy)
    except UsageError as error:
        raise ValueError(f"strategy: {error}") from None


def _short(value: Any) -> str:
    """A value in a message: a function by its name."""
    return str(getattr(value, "__name__", None) or repr(value))
