"""`@tuner.tune(...)`: replaces `triton.autotune` for a user's own kernels.

    @tuner.tune(space={"BLOCK": [256, 512, 1024], "num_warps": [2, 4, 8]}, key=["size"])
    @triton.jit
    def scale(x_ptr, y_ptr, size, BLOCK: tl.constexpr): ...

It takes the arguments of `triton.autotune` with the same meaning, and stores its results by device, driver, torch and
Triton, source of the kernel, key and dtypes. The first configuration is used until another is faster beyond the noise.
Nothing is tuned inside the capture of a CUDA graph, a trace of torch.compile, with NAS_TUNING=off, or inside a test
unless NAS_TUNING=on; stored results are used there too. `kernel.explain(...)` says which configuration a call uses and
why.
"""

from __future__ import annotations

import difflib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch.registry import Problem
from tuner.device import fingerprint
from tuner.measure.measure import Clock
from tuner.search.backends import Backend, Nowhere, backend
from tuner.search.decision import Decision, decide
from tuner.search.effort import effort as effort_called
from tuner.search.search import Search
from tuner.space import TuningSpace
from tuner.triton import case as cases
from tuner.triton.buffers import Buffers
from tuner.triton.case import Case, Launch
from tuner.triton.compile_trace import described, numbered, settings_of_trace, usual_device
from tuner.triton.enabled import reason_not_to_tune
from tuner.triton.jit_source import function_of, source
from tuner.triton.kernel_bench import Clocked, Injected, KernelBench, Timer

log = logging.getLogger(__name__)

EVALUATIONS = {"none": 0, "quick": 40, "full": 250}  # configurations measured for one key, by effort


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
    """Decorate a `triton.jit` kernel. It is tuned again for every new value of the arguments named in `key`.

    The arguments up to `cache_results` are those of `triton.autotune`; `cache_results=False` remembers results in this
    process only. configs: triton.Config or mappings; the first is the default. space: instead of configs, the values of
    each parameter, which may include `num_warps` and the like; the default is the first value of each, or `default`.
    constraints: conditions on a configuration; each is called with the configuration and the arguments of the call, by
    name. effort: none, quick (at most 40 configurations) or full (at most 250). budget: seconds for one key. strategy:
    a name from `tuner.strategies`. store: a folder, a database file or a URL; by default $NAS_STORAGE, else a folder in
    the user's data directory. check: reject a configuration whose result differs from the default's. clock: see
    `tuner.measure.measure`. Raises ValueError that names the wrong argument.
    """
    if configs is not None and space is not None:
        raise ValueError("give either configs or space, not both.")
    if space is None and (default is not None or tuple(constraints)):
        raise ValueError("default and constraints go with space; with configs the first is the default.")
    if effort not in EVALUATIONS:
        raise ValueError(f"effort must be one of {', '.join(EVALUATIONS)}, but got {effort!r}.")
    options = Options(
        configs=None if configs is None else tuple(map(cases.config, configs)),
        space=space,
        constraints=tuple(constraints),
        default=dict(default or {}),
        key=tuple(key),
        prune=dict(prune_configs_by or {}),
        reset_to_zero=tuple(reset_to_zero or ()),
        restore_value=tuple(restore_value or ()),
        pre_hook=pre_hook,
        post_hook=post_hook,
        timer=_timer(do_bench, warmup, rep, use_cuda_graph),
        clock=clock,
        backend=backend(store) if cache_results else Nowhere(),
        effort=effort,
        budget=budget,
        strategy=strategy,
        seed=seed,
        check=check,
    )
    return lambda fn: TunedKernel(fn, options)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `tune`."""

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
    timer: Timer | None
    clock: Clock | None
    backend: Backend
    effort: str
    budget: float | None
    strategy: str | None
    seed: int
    check: bool


@dataclass(frozen=True)
class Served:
    """The triton.Config that a call uses, and why, in words that a person can act on. milliseconds: if measured."""

    config: Any
    why: str
    milliseconds: float | None = None


class TunedKernel:
    """A kernel that is launched as before, `kernel[grid](...)`. cache: the configuration of each decided key.
    best_config: the configuration of the last launch. decisions: the decision for each key tuned in this process."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.arg_names, self.keys, self.options = fn, list(fn.arg_names), list(options.key), options
        self.base_fn = function_of(fn)
        self.__name__, self.__doc__ = self.base_fn.__name__, self.base_fn.__doc__
        self.name = f"{self.base_fn.__module__}.{self.base_fn.__qualname__}"
        for what in ("key", "reset_to_zero", "restore_value"):
            self._check(what, getattr(options, what), self.arg_names)
        self._check("space", options.space or (), [*self.arg_names, *cases.OPTIONS])
        some = options.configs if options.space is None else cases.product(options.space)
        self.configs = [cases.config(each) for each in some or [{}]]
        self.cache: dict[tuple, Any] = {}
        self.decisions: dict[tuple, Decision] = {}
        self.best_config: Any = None
        self._untuned: dict[tuple, Served] = {}  # what keys use while tuning is disabled
        self._lock = threading.RLock()
        self._number = numbered(self)

    def _check(self, what: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
                raise ValueError(f"{what} names {name!r}, which is no argument of {self.name}. {hint}")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on `grid` with the best known configuration; tune first if there is none and tuning is enabled.

        Raises RuntimeError if no configuration runs.
        """
        if torch.compiler.is_compiling():
            settings = settings_of_trace(self._number, described({**dict(zip(self.arg_names, args)), **kwargs}))
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
        """Which configuration a call with these arguments would use now, and why; nothing is launched or tuned."""
        case = self._case({**dict(zip(self.arg_names, args)), **kwargs}, kwargs)
        return self._known(case) or self._missed(case, reason_not_to_tune() or "it will be tuned when it is called")

    def of_trace(self, arguments: Mapping[str, Any], where: str) -> Served:
        """Which configuration a call uses that is being traced; its tensors have shapes and dtypes only."""
        case = self._case(arguments, {}, where)
        return self._known(case) or self._missed(case, reason_not_to_tune() or "it is traced")

    def _key(self, arguments: Mapping[str, Any]) -> tuple:
        """As in Triton: the values of the arguments in `key`, and the dtypes of all tensors; also their device."""
        values = [arguments[name] for name in self.keys if name in arguments]
        some = [arguments[name] for name in self.arg_names if hasattr(arguments.get(name), "dtype")]
        return (*values, *(each.dtype for each in some), getattr(some[0], "device", None) if some else None)

    def _serve(self, key: tuple, launch: Launch) -> Served:
        """What is known, else what tuning finds if it is enabled, else the default."""
        disabled = reason_not_to_tune()
        if disabled is not None and key in self._untuned:
            return self._untuned[key]
        with self._lock:
            case = self._case(launch.arguments, launch.kwargs)
            served = self._known(case)
            if served is None and len(case.choices) == 1:
                served = Served(case.choices[case.default], "it is the only configuration")
            if served is None and disabled is None and self.options.effort != "none":
                served = self._tune(case, key, launch)
            if served is not None:
                self.cache[key] = served.config
            else:  # a later call may tune it
                served = self._untuned[key] = self._missed(case, disabled or "effort is none")
            log.info("%s %s: %s", self.name, key, served.why)
            return served

    def _case(self, arguments: Mapping[str, Any], kwargs: Mapping[str, Any], where: str | None = None) -> Case:
        """The problem of a call and its configurations."""
        tensors = [each for each in arguments.values() if isinstance(each, torch.Tensor)]
        where = where or (str(tensors[0].device) if tensors else usual_device())
        values = [(name, arguments[name]) for name in self.keys if name in arguments]
        sizes = tuple((name, value) for name, value in values if type(value) is int)
        flags = [(name, str(value)) for name, value in values if type(value) is not int]
        flags += [(f"{name}.dtype", str(each.dtype)) for name, each in arguments.items() if hasattr(each, "dtype")]
        if cases.interpreted(self.fn):
            flags.append(("interpreted", "True"))
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        problem = Problem(self.name, torch.device(where).type, dtype, sizes, tuple(flags))
        choices = {cases.choice_of(cases.values(each)): each for each in self._configs(arguments, kwargs)}
        return Case(problem, fingerprint(where), where, source(self.base_fn), choices, self.options.backend)

    def _configs(self, arguments: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The configurations of a call, the default first."""
        options = self.options
        if options.space is None:
            return cases.pruned(self.configs, options.prune, self.arg_names, arguments, kwargs)
        keeps = [lambda values, each=each: each({**arguments, **values}) for each in options.constraints]
        allowed = TuningSpace.product(options.space, keeps)
        first = allowed.number({**allowed.configuration(0), **options.default})
        order = [first, *(number for number in range(len(allowed)) if number != first)]
        return [cases.config(allowed.configuration(number)) for number in order]

    def _known(self, case: Case) -> Served | None:
        """By the newest comparison among the same configurations; if tuning is disabled, any comparison will do."""
        disabled = reason_not_to_tune() is not None
        finals = case.cache.compared(case.problem, [case.signature], None if disabled else self.options.effort)
        note = ""
        if finals is None and disabled:
            finals = next(reversed(case.cache.finals(case.problem).values()), None)
            note = ", in a comparison with other configurations"
        if finals is None:
            return None
        decision = decide(case.problem, case.default, finals, {}, self.options.seed)
        if decision.choice is None or decision.choice not in case.choices:
            return None
        return Served(case.choices[decision.choice], f"it was tuned: {decision.why}{note}", decision.milliseconds)

    def _missed(self, case: Case, reason: str) -> Served:
        """The default, and why nothing else is known."""
        return Served(case.choices[case.default], f"the first configuration: {case.why_nothing_is_known()}; {reason}")

    def _tune(self, case: Case, key: tuple, launch: Launch) -> Served:
        options, hook = self.options, self.options.pre_hook
        effort = effort_called(options.effort)
        effort = replace(effort, evaluations=EVALUATIONS[effort.name], whole=EVALUATIONS[effort.name])
        buffers = Buffers(launch.arguments, options.reset_to_zero, options.restore_value, whole=hook is None)
        timer = options.timer or Clocked(case.where, options.clock)
        search = Search(
            case.candidates,
            KernelBench(case, launch, buffers, timer, effort, check=options.check, pre_hook=hook),
            case.cache,
            effort,
            seed=options.seed,
            strategy=options.strategy,
            deadline=math.inf if options.budget is None else time.monotonic() + options.budget,
        )
        decision = self.decisions[key] = search.run()
        if decision.choice is None:
            message = search.known[case.default].outcome.message
            raise RuntimeError(f"{self.name}: no configuration of it runs. The first one: {message}")
        config = case.choices[decision.choice]
        if hook is not None:
            hook({**launch.arguments, **config.all_kwargs()}, reset_only=True)
        return Served(config, f"just tuned: {decision.why}", decision.milliseconds)


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
