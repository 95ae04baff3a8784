"""A Triton kernel under `tuner.tune`: finds, checks and remembers the configuration of each call."""

from __future__ import annotations

import difflib
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch

from kernels.dispatch.registry import Choice, Problem
from tuner.device import fingerprint
from tuner.outcome import CallFailed, Kind
from tuner.search.backends import StoreFailed
from tuner.search.cache import Known
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort
from tuner.search.effort import effort as effort_called
from tuner.search.search import Search
from tuner.space import TuningSpace
from tuner.triton import configurations as cases
from tuner.triton import ranks
from tuner.triton.alone import alone
from tuner.triton.call import check_call, with_blame
from tuner.triton.case import Case, Launch, forget_all, hints, is_valid
from tuner.triton.checking.buffers import Buffers, CannotCheck, NothingWritten
from tuner.triton.checking.holders import UnknownMemory, tensors, typed
from tuner.triton.checking.output_check import OutputCheck
from tuner.triton.compile_trace import described, numbered, settings_of_trace, usual_device
from tuner.triton.enabled import reason_not_to_tune
from tuner.triton.jit_source import function_of, functions, source
from tuner.triton.kernel_bench import CHECKED, Clocked, KernelBench
from tuner.triton.large_space import Combinations, is_large
from tuner.triton.options import Options

log = logging.getLogger(__name__)

EVALUATIONS = {"none": 0, "quick": 40, "full": 250}  # configurations measured for one key, by effort
BUDGETS = {"none": 0.0, "quick": 120.0, "full": 3600.0}  # seconds for one key, if the user gives no other number
LIMITS = {"none": 60.0, "quick": 60.0, "full": 180.0}  # seconds of a compilation, and of a first run
SLOW = " If it is slow and does not hang, give it more time: limit=SECONDS."
UNCHECKED = "no configuration can be checked"
UNSEEN = 3  # calls of a key that change nothing, after which its first configuration serves without another check


@dataclass(frozen=True)
class Served:
    """The triton.Config that a call uses, and why, in words that a person can act on. milliseconds: if measured.
    is_checked: whether it is stored that its output was checked, and against what."""

    config: Any
    why: str
    milliseconds: float | None = None
    is_checked: bool = True
    choice: Choice | None = None

    def __str__(self) -> str:
        return f"{self.config}: {self.why}"


class TunedKernel:
    """A kernel that is launched as before, `kernel[grid](...)`. cache: the configuration of each decided key.
    best_config: the configuration of the last launch. decisions: the decision for each key tuned in this process.
    configs_timings, bench_time: of the last tuning, as in Triton: milliseconds of each configuration, and seconds."""

    def __init__(self, fn: Any, options: Options) -> None:
        self.fn, self.arg_names, self.keys, self.options = fn, list(fn.arg_names), list(options.key), options
        self.base_fn = function_of(fn)
        self.__name__, self.__doc__ = self.base_fn.__name__, self.base_fn.__doc__
        self.name = f"{self.base_fn.__module__}.{self.base_fn.__qualname__}"
        for what in ("key", "reset_to_zero", "restore_value"):
            self._check(what, getattr(options, what), self.arg_names)
        named = options.space or dict.fromkeys(name for each in options.configs or () for name in each.kwargs)
        own = [name for name in named if name not in cases.of_backends()]
        self._check("configs" if options.space is None else "space", own, [*self.arg_names, *cases.OPTIONS])
        self.cache: dict[tuple, Any] = {}
        self.decisions: dict[tuple, Decision] = {}
        self.best_config: Any = None
        self.configs_timings: dict[Any, list[float]] = {}
        self.bench_time = 0.0
        self._untuned: dict[tuple, Served] = {}  # what keys use while tuning is disabled
        self._decided: dict[tuple, Served] = {}  # the same as `cache`, with the reasons
        self._warned: set[type] = set()
        self._unseen: dict[tuple, int] = {}  # calls of a key that changed nothing
        self._waited: set[tuple] = set()  # keys that this process has waited for in vain
        self._forgotten = 0  # how often `forget` was called
        self._lock = threading.RLock()
        self.number = numbered(self)  # by which a trace finds it

    @cached_property
    def configs(self) -> list[Any]:
        """All configurations, before constraints and pruning."""
        options = self.options
        some = options.configs if options.space is None else cases.product(options.space)
        return [cases.config(each) for each in some or [{}]]

    @cached_property
    def _given(self) -> list[Any]:
        """Functions that configurations give to the kernel, and their hooks."""
        space = self.options.space
        if space is not None:
            return [each for values in space.values() for each in functions(values)]
        return [found for each in self.configs for found in functions([each.pre_hook, *each.kwargs.values()])]

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

        Raises RuntimeError if no configuration runs, TypeError or ValueError for a call with wrong arguments, and what
        the grid function raises.
        """
        if torch.compiler.is_compiling():
            settings = settings_of_trace(self.number, described({**dict(zip(self.arg_names, args)), **kwargs}))
            return self.fn[grid](*args, **kwargs, **dict(settings))
        arguments = {**dict(zip(self.arg_names, args)), **kwargs}
        config = self.cache.get(self._key(arguments))
        if config is None:
            config = self._serve(self._launch(args, kwargs, grid)).config
        self.best_config = config
        settings = config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **settings})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **settings)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration of a call."""
        configs = self._configs(self._launch(args, kwargs, grid))
        return [self.fn.warmup(*args, grid=grid, **kwargs, **each.all_kwargs()) for each in configs]

    def warm(self, *args: Any, grid: Any, **kwargs: Any) -> Served:
        """Tune a call if its configuration is not known, without launching it: the tensors stay as they are.

        Call it before the kernel is traced by `torch.compile`, because nothing is tuned in a trace. Raises as `run`.
        """
        launch = self._launch(args, kwargs, grid)
        config = self.cache.get(self._key(launch.arguments))
        return self._serve(launch) if config is None else Served(config, "it was decided before")

    def explain(self, *args: Any, **kwargs: Any) -> Served:
        """Which configuration a call with these arguments would use now, and why; nothing is launched or tuned.

        Raises ValueError if `key` names a tensor, or if no configuration remains for these arguments.
        """
        launch = self._launch(args, kwargs, None)
        will = "effort is none" if self.options.effort == "none" else "it will be tuned when it is called"
        served, own = self._would_serve(launch, will), self._decided.get(self._key(launch.arguments))
        if own is not None and (served.choice is None or served.config != own.config):
            return own  # no stored result says what this process uses until it ends
        if served.milliseconds is None or served.is_checked or not self.options.check:
            return served
        return replace(served, why=f"{served.why}; its output was not checked, so a call checks it first")

    def of_trace(self, arguments: Mapping[str, Any], where: str) -> Served:
        """Which configuration a call uses that is being traced; its tensors have shapes and dtypes only.

        Raises ValueError as `explain` does.
        """
        launch = Launch(self.fn, (), arguments, None, arguments)
        served = self._would_serve(launch, "it is traced", where)
        return served if served.is_checked or not self.options.check else self._missed(launch, "not checked", where)

    def forget(self, *args: Any, **kwargs: Any) -> None:
        """Measure again at the next call: this call if arguments are given, else all calls.

        Raises ValueError as `explain` does, and StoreFailed if the stored results cannot be changed.
        """
        with self._lock:
            if args or kwargs:
                case = self._case(self._launch(args, kwargs, None))
                case.cache.forget(case.problem)
            else:
                forget_all(self.options.backend, self.name)
            self.cache.clear()
            self._untuned.clear()
            self._decided.clear()
            self._waited.clear()
            self._forgotten += 1

    def _launch(self, args: tuple, kwargs: Mapping[str, Any], grid: Any) -> Launch:
        arguments = {**dict(zip(self.arg_names, args)), **kwargs}
        return Launch(self.fn, args, kwargs, grid, arguments, self.options.post_hook)

    def _key(self, arguments: Mapping[str, Any]) -> tuple:
        """As in Triton: the values of the arguments in `key`, and the dtypes of all tensors; also of those that other
        arguments hold, their device, and functions that the kernel gets, because they are part of its code. All with
        the names of the arguments: which of them a call leaves out is a part of its key."""
        values = [(name, arguments[name]) for name in self.keys if name in arguments]
        some = [each for name in self.arg_names for each in typed(name, arguments.get(name))]
        device = getattr(some[0][1], "device", None) if some else None
        dtypes = [(name, each.dtype) for name, each in some]
        return (*values, *dtypes, device, *functions(arguments.values()))

    def _would_serve(self, launch: Launch, otherwise: str, where: str | None = None) -> Served:
        try:
            case = self._case(launch, where)
            if (served := self._known(case)) is not None:
                return served
            return Served(case.choices[case.default], case.missed(reason_not_to_tune() or otherwise))
        except StoreFailed as error:
            return Served(self._configs(launch)[0], f"the first configuration: {error}")

    def _missed(self, launch: Launch, reason: str, where: str | None = None) -> Served:
        case = self._case(launch, where)
        return Served(case.choices[case.default], case.missed(reason))

    def _serve(self, launch: Launch) -> Served:
        """What is known, else what tuning finds if it is enabled, else the default."""
        disabled, key = reason_not_to_tune(), self._key(launch.arguments)
        if disabled is not None and key in self._untuned:
            return self._untuned[key]
        with self._lock:
            if key in self.cache:  # another thread tuned it meanwhile
                return Served(self.cache[key], "it was decided before")
            try:
                served, is_final = self._found(key, launch, disabled)
            except StoreFailed as error:
                served, is_final = self._default(launch, error, str(error)), True
            except NothingWritten as error:  # the next calls may show what the kernel writes
                self._unseen[key] = self._unseen.get(key, 0) + 1
                is_final = self._unseen[key] >= UNSEEN
                served = self._default(launch, error, f"{UNCHECKED}: {error}", warns=is_final)
            except CannotCheck as error:
                served, is_final = self._default(launch, error, f"{UNCHECKED}: {error}"), True
            if is_final:
                self.cache[key], self._decided[key] = served.config, served
            else:  # a later call may tune it
                self._untuned[key] = served
            log.info("%s %s: %s", self.name, key, served.why)
            return served

    def _found(self, key: tuple, launch: Launch, disabled: str | None) -> tuple[Served, bool]:
        """(what serves a call, whether that is final); in a distributed job one rank decides for all."""
        case = self._case(launch)
        shared = ranks.store() if disabled is None else None
        if shared is None:
            return self._found_here(case, key, launch, disabled)

        def use(choice: Choice) -> tuple[Served, bool] | None:
            return (Served(case.choices[choice], "another rank chose it"), True) if choice in case.choices else None

        what = f"{self.name} {case.problem} {case.device.key} {case.source} {case.signature}"
        what += f" {self._forgotten}" if self._forgotten else ""  # what the ranks agreed on before is forgotten
        here = partial(self._found_here, case, key, launch, disabled)
        longest = 0.0 if key in self._waited else None
        return ranks.agreed(
            shared, what, here, lambda found: found[0].choice, use, longest, lambda: self._waited.add(key)
        )

    def _found_here(self, case: Case, key: tuple, launch: Launch, disabled: str | None) -> tuple[Served, bool]:
        """The same for this process alone."""
        served = self._stored(case, launch, disabled)
        if served is None and len(case.choices) == 1:
            served = Served(case.choices[case.default], "it is the only configuration")
        if served is not None:
            return served, True
        if disabled is not None or self.options.effort == "none":
            return Served(case.choices[case.default], case.missed(disabled or "effort is none")), False
        check_call(launch, self.base_fn, case.choices[case.default])
        longest = 0.0 if key in self._waited else None
        with alone(f"{self.name} {case.problem} {case.device.key} {self.options.place}", longest) as waited:
            if waited is None:
                self._waited.add(key)  # later calls look, and do not wait
                return Served(case.choices[case.default], case.missed("another process is tuning it")), False
            if waited:
                case = self._case(launch)
                served = self._stored(case, launch, disabled)
            return (served or self._tune(case, key, launch)), True

    def _default(self, launch: Launch, error: Exception, reason: str, *, warns: bool = True) -> Served:
        """The first configuration, with a warning that says why nothing else serves; once for each kind of error."""
        if warns and type(error) not in self._warned:
            self._warned.add(type(error))
            message = f"{self.name} is not tuned, and its first configuration serves: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)  # where the kernel is called
        return Served(self._configs(launch)[0], f"the first configuration: {reason}")

    def _case(self, launch: Launch, where: str | None = None) -> Case:
        """The problem of a call and its configurations."""
        arguments = launch.arguments
        try:
            held = {name: tensor for name, tensor, _ in tensors(arguments)}
        except UnknownMemory:
            held = {name: each for name, each in arguments.items() if isinstance(each, torch.Tensor)}
        some = list(held.values())
        where = where or (str(some[0].device) if some else usual_device())
        values = [(name, arguments[name]) for name in self.keys if name in arguments]
        if whole := [name for name, value in values if isinstance(value, torch.Tensor)]:
            hint = "name numbers, such as its size; the dtypes of tensors count anyway"
            raise ValueError(f"key of {self.name} names {whole[0]!r}, which is a tensor: {hint}.")
        sizes = tuple((name, value) for name, value in values if type(value) is int)
        flags = [(name, str(value)) for name, value in values if type(value) is not int]
        flags += [(f"{name}.dtype", str(each.dtype)) for name, each in arguments.items() if hasattr(each, "dtype")]
        flags += [(f"{name}.dtype", str(each.dtype)) for name, each in held.items() if name not in arguments]
        if cases.interpreted(self.fn):
            flags.append(("interpreted", "True"))
        dtype = str(some[0].dtype).removeprefix("torch.") if some else ""
        problem = Problem(self.name, torch.device(where).type, dtype, sizes, tuple(flags))
        choices = self._choices(launch)
        code = source(self.fn, self._given, functions(arguments.values()))
        return Case(problem, fingerprint(where), where, code, choices, self.options.backend)

    def _choices(self, launch: Launch) -> Mapping[Choice, Any]:
        """The configurations of a call by choice, the default first. Raises ValueError if none is left."""
        options = self.options
        try:
            if options.space is not None and is_large(options.space):
                return Combinations(options.space, options.constraints, options.default, launch.arguments)
            choices: dict[Choice, Any] = {}
            for each in self._configs(launch):
                choices.setdefault(cases.choice_of(cases.values(each)), each)
            return choices
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

    def _configs(self, launch: Launch) -> list[Any]:
        """The configurations of a call, the default first."""
        options = self.options
        if options.space is None:
            positional = dict(zip(self.arg_names, launch.args))
            named = {"grid": launch.grid, "warmup": False, **launch.kwargs}
            return cases.pruned(self.configs, options.prune, positional, named)
        keeps = partial(_allowed, options.constraints, launch.arguments)
        allowed = TuningSpace.product(options.space, [keeps] if options.constraints else [])
        first = allowed.number({**allowed.configuration(0), **options.default})
        order = [first, *(number for number in range(len(allowed)) if number != first)]
        return [cases.config(allowed.configuration(number)) for number in order]

    def _stored(self, case: Case, launch: Launch, disabled: str | None) -> Served | None:
        """What is known of a call. If it is not stored that its output was checked, it is checked now.

        Raises CannotCheck if that is impossible.
        """
        served = self._known(case)
        if served is None or served.choice is None or served.is_checked or not self.options.check:
            return served
        if disabled is not None:
            return None
        bench = self._bench(case, launch, effort_called("none"))
        try:
            failed = bench.failure(served.choice)
        finally:
            bench.forget()
        if failed is None:
            return served
        case.cache.write(case.problem, {served.choice: failed})
        return None

    def _known(self, case: Case) -> Served | None:
        """By the newest comparison among the same configurations; if tuning is disabled, among others will do."""
        disabled = reason_not_to_tune() is not None
        finals = case.cache.compared(case.problem, [case.signature], None if disabled else self.options.effort)
        note = ""
        if finals is None and disabled:
            finals = _among_others(case)
            note = ", in a comparison with other configurations"
        if finals is None:
            return None
        known = case.cache.known(case.problem)
        timed = {choice for choice, each in finals.items() if each.outcome.samples}
        failed = {choice: known[choice] for choice in {case.default} - timed if choice in known}  # why it cannot serve
        decision = decide(case.problem, case.default, finals, failed, self.options.seed)
        if decision.choice is None or decision.choice not in case.choices:
            return None
        newest = known[decision.choice].outcome
        if newest.kind is Kind.WRONG and is_valid(newest, case.default):  # found after the comparison
            return None
        checked = finals[decision.choice].outcome.message.startswith(CHECKED)
        why = f"it was tuned: {decision.why}{note}"
        return Served(case.choices[decision.choice], why, decision.milliseconds, checked, decision.choice)

    def _bench(self, case: Case, launch: Launch, effort: Effort) -> KernelBench:
        """Raises CannotCheck if the tensors cannot be copied, unless results need not be checked."""
        options, hook = self.options, self.options.pre_hook
        named = (options.reset_to_zero, options.restore_value) if hook is None else ((), ())
        check, limit = None, LIMITS[options.effort] if options.limit is None else options.limit
        if options.check:
            blamed = with_blame(launch)
            more: dict[str, Any] = {"deterministic": options.deterministic, "seed": options.seed, "pre_hook": hook}
            more["longest"] = limit
            check = OutputCheck(blamed, *named, **more)
        try:
            buffers = Buffers(launch.arguments, *named, whole=True)
        except CannotCheck:
            if options.check:
                raise
            buffers = Buffers(launch.arguments, *named, whole=False)
        timer = options.timer or Clocked(case.where, options.clock)
        within = limit if options.isolate else None
        return KernelBench(case, with_blame(launch), buffers, timer, effort, check=check, pre_hook=hook, limit=within)

    def _tune(self, case: Case, key: tuple, launch: Launch) -> Served:
        options, began = self.options, time.monotonic()
        effort = effort_called(options.effort)
        effort = replace(effort, evaluations=EVALUATIONS[effort.name], whole=EVALUATIONS[effort.name])
        known = case.cache.known(case.problem)
        if known and all(each.milliseconds is None for each in known.values()):
            case.cache.forget(case.problem)  # nothing has run yet, so the call may have been at fault
        bench = self._bench(case, launch, effort)
        search = Search(
            case.candidates,
            bench,
            case.cache,
            effort,
            seed=options.seed,
            strategy=options.strategy,
            hints=partial(hints, case.cache, case.problem, effort.evaluations),
            deadline=time.monotonic() + (BUDGETS[effort.name] if options.budget is None else options.budget),
        )
        decision = self.decisions[key] = search.run()
        self.bench_time = time.monotonic() - began
        self.configs_timings = case.timings(search.known)
        if decision.choice is None:
            error = bench.errors.get(case.default)
            if isinstance(error, CallFailed):
                raise error.error
            first, tried = search.known[case.default].outcome, f"{len(search.known)} of {len(case.choices)}"
            if first.kind in (Kind.OUT_OF_MEMORY, Kind.KILLED):  # the call alone may have room
                what = "ran out of memory" if first.kind is Kind.OUT_OF_MEMORY else "was killed"
                raise CannotCheck(f"the first one {what}: {first.message}") from error
            message = f"{self.name}: no configuration of it runs. The first one: {first.message}. {tried} were tried."
            raise RuntimeError(message + SLOW * (first.kind is Kind.TIMED_OUT)) from error
        config = case.choices[decision.choice]
        if options.pre_hook is not None:
            options.pre_hook({**launch.arguments, **config.all_kwargs()}, reset_only=True)
        rest = "" if search.in_time else "; its tuning did not end, and the next process continues it"
        return Served(config, f"just tuned: {decision.why}{rest}", decision.milliseconds, choice=decision.choice)


def _among_others(case: Case) -> dict[Choice, Known] | None:
    """The newest comparison, if the default took part or cannot run. Else the others were checked against another
    default, which may be wrong."""
    finals = next(reversed(case.cache.finals(case.problem).values()), {})
    known = finals.get(case.default) or case.cache.known(case.problem).get(case.default)
    if known is None or (known.milliseconds is None and not is_valid(known.outcome, case.default)):
        return None
    return finals if case.default in finals or known.milliseconds is None else None


def _allowed(
    constraints: Sequence[Callable[..., bool]], arguments: Mapping[str, Any], values: Mapping[str, Any]
) -> bool:
    merged = cases.Named(arguments, **values)
    return all(each(merged) for each in constraints)
