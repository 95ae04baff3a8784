"""`@tuner.tune(...)`: in the place of `triton.autotune`, for kernels that are not ours.

    @tuner.tune(space={"BLOCK": [256, 512, 1024], "num_warps": [2, 4, 8]}, key=["size"])
    @triton.jit
    def scale(x_ptr, y_ptr, size, BLOCK: tl.constexpr): ...

It takes what `triton.autotune` takes, with the same meaning, and keeps what it measures: by device, driver, torch and
Triton, source of the kernel, key and dtypes. The first configuration serves until another was faster beyond the noise.
Nothing is tuned inside a CUDA graph's capture, a trace of torch.compile, with NAS_TUNING=off, or inside a test unless
NAS_TUNING=on; what is known serves there too. `kernel.explain(...)` says what serves a call and why.
"""

from __future__ import annotations

import difflib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch.registry import Choice, Problem
from tuner.device import fingerprint
from tuner.measure.measure import Clock
from tuner.outcome import Outcome
from tuner.search.decision import Decision, decide
from tuner.space import TuningSpace
from tuner.triton import kernel_case, kernel_memory
from tuner.triton.buffers import Buffers
from tuner.triton.jit_source import function_of, source
from tuner.triton.kernel_case import Case, Launch, interpreted
from tuner.triton.kernel_search import (
    EVALUATIONS,
    Bench,
    Clocked,
    Injected,
    KernelSearch,
    choice_of,
    signature,
    thorough,
)
from tuner.triton.kernel_trace import described, settings_of_trace, usual_device
from tuner.triton.permission import refusal

log = logging.getLogger(__name__)


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
    clock: Clock | None = None,
) -> Callable[[Any], TunedKernel]:
    """Decorate a `triton.jit` kernel, whose arguments named in `key` decide anew which configuration serves.

    The arguments up to `cache_results` are those of `triton.autotune`; `cache_results=False` remembers in this process
    only. configs: triton.Config or mappings, the first the default. space: instead of configs, the values of each
    parameter, `num_warps` and the like among them; the first of each is the default, or what `default` says.
    constraints: what a configuration must keep; each is given it and the arguments of the call by name. effort: none,
    quick (40 configurations at most) or full (250). budget: seconds for one key. strategy: of `tuner.strategies`.
    store: a folder, a database file or a URL; by default $NAS_STORAGE, else a folder of the user. check: refuse a
    configuration that writes another result than the default. clock: see `tuner.measure.measure`. Raises ValueError
    naming what is wrong.
    """
    if configs is not None and space is not None:
        raise ValueError("say what to choose among once: configs, or space.")
    if space is None and (default is not None or tuple(constraints)):
        raise ValueError("default and constraints go with space; with configs the first is the default.")
    if effort not in EVALUATIONS:
        raise ValueError(f"effort must be one of {', '.join(EVALUATIONS)}, but got {effort!r}.")
    options = Options(
        configs=None if configs is None else tuple(map(kernel_case.config, configs)),
        space=space,
        constraints=tuple(constraints),
        default=dict(default or {}),
        key=tuple(key),
        prune=dict(prune_configs_by or {}),
        reset_to_zero=tuple(reset_to_zero or ()),
        restore_value=tuple(restore_value or ()),
        pre_hook=pre_hook,
        post_hook=post_hook,
        bench=_injected(do_bench, warmup, rep, use_cuda_graph),
        clock=clock,
        memory=kernel_memory.memory(store) if cache_results else kernel_memory.Forgetful(),
        effort=effort,
        budget=budget,
        strategy=strategy,
        seed=seed,
        check=check,
    )
    return lambda fn: TunedKernel(fn, options)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `tune` was given."""

    configs: tuple[Any, ...] | None
    space: Mapping[str, Sequence[Any]] | None
    constraints: tuple[Callable[[Mapping[str, Any]], bool], ...]
    default: dict[str, Any]
    key: tuple[str, ...]
    prune: dict[str, Any]
    reset_to_zero: tuple[str, ...]
    restore_value: tuple[str, ...]
    pre_hook: Callable[..., Any] | None
    post_hook: Callable[..., Any] | None
    bench: Bench | None
    clock: Clock | None
    memory: kernel_memory.Memory
    effort: str
    budget: float | None
    strategy: str | None
    seed: int
    check: bool


@dataclass(frozen=True)
class Served:
    """A triton.Config and why it serves, in words that a person can act on. milliseconds: where they were measured."""

    config: Any
    why: str
    milliseconds: float | None = None


class TunedKernel:
    """A kernel that is launched as before, `kernel[grid](...)`. cache: the configuration of each key that is decided;
    best_config: of the last launch; decisions: of each key that this process decided."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.arg_names, self.keys, self.options = fn, list(fn.arg_names), list(options.key), options
        self.base_fn = function_of(fn)
        self.__name__, self.__doc__ = self.base_fn.__name__, self.base_fn.__doc__
        self.name = f"{self.base_fn.__module__}.{self.base_fn.__qualname__}"
        for what in ("key", "reset_to_zero", "restore_value"):
            self._check(what, getattr(options, what), self.arg_names)
        self._check("space", options.space or (), [*self.arg_names, *kernel_case.OPTIONS])
        some = options.configs if options.space is None else kernel_case.product(options.space)
        self.configs = [kernel_case.config(each) for each in some or [{}]]
        self.cache: dict[tuple, Any] = {}
        self.decisions: dict[tuple, Decision] = {}
        self.best_config: Any = None
        self._refused: dict[tuple, Served] = {}  # what serves where nothing may be tuned
        self._lock = threading.RLock()

    def _check(self, what: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
                raise ValueError(f"{what} names {name!r}, which is no argument of {self.name}. {hint}")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on `grid` with what serves these arguments; tune them first, if that is needed and may be."""
        if torch.compiler.is_compiling():
            settings = settings_of_trace(self, described({**dict(zip(self.arg_names, args)), **kwargs}))
            return self.fn[grid](*args, **kwargs, **dict(settings))
        arguments = {**dict(zip(self.arg_names, args)), **kwargs}
        key = self._key(arguments)
        config = self.cache.get(key)
        if config is None:
            config = self._serve(key, Launch(self.fn, args, kwargs, grid, arguments, self.options.post_hook)).config
        self.best_config = config
        settings = config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **settings})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **settings)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration of a call."""
        configs = self._configs({**dict(zip(self.arg_names, args)), **kwargs}, kwargs)
        return [self.fn.warmup(*args, grid=grid, **kwargs, **each.all_kwargs()) for each in configs]

    def explain(self, *args: Any, **kwargs: Any) -> Served:
        """What serves a call with these arguments now, and why; nothing is launched or tuned."""
        case = self._case({**dict(zip(self.arg_names, args)), **kwargs}, kwargs)
        return self._known(case) or self._missed(case, refusal() or "it will be tuned when it is called")

    def _key(self, arguments: Mapping[str, Any]) -> tuple:
        """As Triton's: the values that `key` names, and the dtypes of all tensors; and where they are."""
        values = [arguments[name] for name in self.keys if name in arguments]
        some = [arguments[name] for name in self.arg_names if hasattr(arguments.get(name), "dtype")]
        return (*values, *(each.dtype for each in some), getattr(some[0], "device", None) if some else None)

    def _serve(self, key: tuple, launch: Launch) -> Served:
        """Decide, if that may be; else what is known, else the default."""
        refused = refusal()
        if refused is not None and key in self._refused:
            return self._refused[key]
        with self._lock:
            case = self._case(launch.arguments, launch.kwargs)
            served = self._known(case)
            if served is None and len(case.choices) == 1:
                served = Served(case.choices[case.default], "it is the only configuration")
            if served is None and refused is None and self.options.effort != "none":
                served = self._tune(case, key, launch)
            if served is not None:
                self.cache[key] = served.config
            else:  # a later call may tune it
                served = self._refused[key] = self._missed(case, refused or "effort is none")
            log.info("%s %s: %s", self.name, key, served.why)
            return served

    def _case(self, arguments: Mapping[str, Any], kwargs: Mapping[str, Any], where: str | None = None) -> Case:
        """The problem of a call, and what there is to choose among."""
        tensors = [each for each in arguments.values() if isinstance(each, torch.Tensor)]
        where = where or (str(tensors[0].device) if tensors else usual_device())
        values = [(name, arguments[name]) for name in self.keys if name in arguments]
        sizes = tuple((name, value) for name, value in values if type(value) is int)
        flags = [(name, str(value)) for name, value in values if type(value) is not int]
        flags += [(f"{name}.dtype", str(each.dtype)) for name, each in arguments.items() if hasattr(each, "dtype")]
        if interpreted(self.fn):
            flags.append(("interpreted", "True"))
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        problem = Problem(self.name, torch.device(where).type, dtype, sizes, tuple(flags))
        choices = {choice_of(kernel_case.values(each)): each for each in self._configs(arguments, kwargs)}
        return Case(problem, fingerprint(where), where, source(self.base_fn), choices)

    def _configs(self, arguments: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """What there is to choose among for a call, the default first."""
        options = self.options
        if options.space is None:
            return kernel_case.pruned(self.configs, options.prune, self.arg_names, arguments, kwargs)
        keeps = [lambda values, each=each: each({**arguments, **values}) for each in options.constraints]
        allowed = TuningSpace.product(options.space, keeps)
        first = allowed.number({**allowed.configuration(0), **options.default})
        order = [first, *(number for number in range(len(allowed)) if number != first)]
        return [kernel_case.config(allowed.configuration(number)) for number in order]

    def of_trace(self, arguments: Mapping[str, Any], where: str) -> Served:
        """What serves a call that is being traced, whose tensors have shapes and dtypes only."""
        case = self._case(arguments, {}, where)
        return self._known(case) or self._missed(case, refusal() or "it is traced")

    def _known(self, case: Case) -> Served | None:
        """By the newest comparison among the same configurations; where nothing may be tuned, by any other too."""
        finals = case.finals(self.options.memory.rows(self.name))
        same = [turns for turns in finals if f"/{signature(case.choices)}/" in turns]
        if refusal() is None:
            same = [turns for turns in same if thorough(turns, self.options.effort)]
        others = list(finals) if not same and refusal() else []
        for turns in (same or others)[-1:]:
            decision = decide(case.problem, case.default, finals[turns], {}, self.options.seed)
            if decision.choice is not None and decision.choice in case.choices:
                beside = "" if turns in same else ", in a comparison with other configurations"
                why = f"it was tuned: {decision.why}{beside}"
                return Served(case.choices[decision.choice], why, decision.milliseconds)
        return None

    def _missed(self, case: Case, reason: str) -> Served:
        """The default, and why it is not what was tuned."""
        lacks = case.lacks(self.options.memory.rows(self.name))
        return Served(case.choices[case.default], f"the first configuration: {lacks}; {reason}")

    def _tune(self, case: Case, key: tuple, launch: Launch) -> Served:
        options, memory = self.options, self.options.memory
        buffers = Buffers(
            launch.arguments, options.reset_to_zero, options.restore_value, whole=options.pre_hook is None
        )

        def record(outcomes: Mapping[Choice, Outcome], turns: str | None) -> None:
            memory.add(case.device, [case.row(choice, outcome, turns) for choice, outcome in outcomes.items()])

        search = KernelSearch(
            case.problem,
            {choice: kernel_case.values(config) for choice, config in case.choices.items()},
            call=lambda choice: partial(launch.run, case.choices[choice]),
            prepare=lambda choice: partial(launch.prepare, case.choices[choice], options.pre_hook or buffers),
            buffers=buffers,
            bench=options.bench or Clocked(case.where, options.clock),
            known=case.known(memory.rows(self.name)),
            record=record,
            effort_name=options.effort,
            strategy=options.strategy,
            seed=options.seed,
            deadline=math.inf if options.budget is None else time.monotonic() + options.budget,
            check=options.check,
        )
        decision = self.decisions[key] = search.run()
        if decision.choice is None:
            message = search.known[case.default].outcome.message
            raise RuntimeError(f"{self.name}: no configuration of it runs. The first one: {message}")
        config = case.choices[decision.choice]
        if options.pre_hook is not None:
            options.pre_hook({**launch.arguments, **config.all_kwargs()}, reset_only=True)
        return Served(config, f"just tuned: {decision.why}", decision.milliseconds)


def _injected(
    do_bench: Callable[..., Any] | None, warmup: int | None, rep: int | None, use_cuda_graph: bool
) -> Bench | None:
    """The benchmark that Triton's arguments ask for; None for our own."""
    if do_bench is not None:
        return Injected(do_bench)
    if warmup is None and rep is None and not use_cuda_graph:
        return None
    import triton.testing

    if use_cuda_graph:
        return Injected(partial(triton.testing.do_bench_cudagraph, rep=rep or 100))
    return Injected(partial(triton.testing.do_bench, warmup=warmup or 25, rep=rep or 100))
