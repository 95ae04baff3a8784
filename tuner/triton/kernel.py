"""A Triton kernel under `tuner.tune`: finds, checks and remembers the configuration of each call."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from nas.registry import nearest
from tuner.measure.measure import Clock
from tuner.outcome import CallFailed, Kind, signals_pass
from tuner.search.cache import Cache, Known
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort
from tuner.search.effort import effort as effort_called
from tuner.search.results import Results, StoreFailed
from tuner.search.search import Search
from tuner.triton import configurations
from tuner.triton.bench import CHECKED, DOUBTED, Clocked, KernelBench, Timer
from tuner.triton.case import Case, Launch, forget_all, is_valid
from tuner.triton.configurations import Configurations
from tuner.triton.copies import Buffers, CannotCheck, NothingWritten, tensors, typed
from tuner.triton.output_check import OutputCheck
from tuner.triton.source import function_of, functions, source
from tuner.triton.tracing import described, numbered, settings_of_trace, usual_device

log = logging.getLogger("tuner")

SWITCH = "NAS_TUNING"
SETTINGS = ("on", "off")
EVALUATIONS = {"none": 0, "quick": 40, "full": 250}  # configurations measured for one key, by effort
BUDGETS = {"none": 0.0, "quick": 120.0, "full": 3600.0}  # seconds for one key, if the user gives no other number
LIMITS = {"none": 60.0, "quick": 60.0, "full": 180.0}  # seconds of a compilation, and of a first run
WAIT = 120.0  # seconds to wait for another process that tunes; a collective operation waits far longer for its ranks
SLOW = " If it is slow and does not hang, give it more time: limit=SECONDS."
UNCHECKED = "no configuration can be checked"
UNSEEN = 3  # calls of a key that change nothing, after which its first configuration serves without another check
PLAIN = {int, float, bool, str, type(None)}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of `tuner.tune`, checked and converted. place: where results are stored."""

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
    results: Results
    effort: str
    budget: float | None
    strategy: str | None
    seed: int
    check: bool
    deterministic: bool
    limit: float | None
    isolate: bool
    place: str


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
        own = [name for name in named if name not in configurations.of_backends()]
        known = [*self.arg_names, *configurations.OPTIONS]
        self._check("configs" if options.space is None else "space", own, known)
        # What is compiled depends on the values of these arguments, and so does what a check proves.
        constants = {name for name, each in self.base_fn.__annotations__.items() if "constexpr" in str(each)}
        self.deciding = [name for name in self.arg_names if name in constants or name in self.keys]
        self._decides = [name in self.deciding for name in self.arg_names]
        self.decisions: dict[tuple, Decision] = {}
        self.best_config: Any = None
        self.configs_timings: dict[Any, list[float]] = {}
        self.bench_time = 0.0
        self._ready: dict[tuple, tuple[Any, dict[str, Any]]] = {}  # by form of a call: a configuration and its settings
        self._decided: dict[tuple, Served] = {}
        self._untuned: dict[tuple, Served] = {}  # what keys use while tuning is disabled
        self._warned: set[type] = set()
        self._unseen: dict[tuple, int] = {}  # calls of a key that changed nothing
        self._waited: set[tuple] = set()  # keys that this process has waited for in vain
        self._lock = threading.RLock()
        self.number = numbered(self)  # by which a trace finds it

    @property
    def cache(self) -> dict[tuple, Any]:
        return {key: served.config for key, served in self._decided.items()}

    @cached_property
    def configs(self) -> list[Any]:
        """All configurations, before constraints and pruning."""
        if self.options.space is not None:
            return list(configurations.combined(self.options.space, (), self.options.default, {}).configs())
        given: Sequence[Any] = self.options.configs or ({},)
        return [configurations.config(each) for each in given]

    def _check(self, what: str, names: Iterable[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                hint = nearest(name, known) or f" Known: {', '.join(known)}."
                raise ValueError(f"{what} names {name!r}, which is no argument of {self.name}.{hint}")

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch on `grid` with the best known configuration; tune first if there is none and tuning is enabled.

        Raises RuntimeError if no configuration runs, TypeError or ValueError for a call with wrong arguments, and what
        the grid function raises.
        """
        if torch.compiler.is_compiling():
            traced = settings_of_trace(self.number, described({**dict(zip(self.arg_names, args)), **kwargs}))
            return self.fn[grid](*args, **kwargs, **dict(traced))
        form = self._form(args, kwargs)
        try:
            ready = self._ready.get(form)
        except TypeError:  # a value of the key has no hash
            ready = None
        if ready is None:
            config = self._serve(self._launch(args, kwargs, grid), form).config
            settings = config.all_kwargs()
        else:
            config, settings = ready
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**dict(zip(self.arg_names, args)), **kwargs, **settings})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **settings)

    def _form(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple:
        """What tells calls apart: as `_key`, in the order and with the names that the call gives. It is computed at
        each launch, so it looks at little more than the types."""
        form: list[Any] = []
        device = None
        for value, decides in zip(args, self._decides):
            kind = value.__class__
            if kind is Tensor:
                form.append(value.dtype)
                device = device or value.device
            else:
                form.append(kind)
                if decides:
                    form.append(value)
                elif kind not in PLAIN:
                    form.append(_held(value))
        for name, value in kwargs.items():
            form.append(name)
            if (kind := value.__class__) is Tensor:
                form.append(value.dtype)
                device = device or value.device
            else:
                form.append(kind)
                form.append(value if name in self.deciding else None if kind in PLAIN else _held(value))
        form.append(device)
        return tuple(form)

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> list[Any]:
        """Compile every configuration of a call."""
        configs = self._choices(self._launch(args, kwargs, grid)).configs()
        return [self.fn.warmup(*args, grid=grid, **kwargs, **each.all_kwargs()) for each in configs]

    def warm(self, *args: Any, grid: Any, **kwargs: Any) -> Served:
        """Tune a call if its configuration is not known, without launching it: the tensors stay as they are.

        Call it before the kernel is traced by `torch.compile`, because nothing is tuned in a trace. Raises as `run`.
        """
        return self._serve(self._launch(args, kwargs, grid))

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
        if served.is_checked or not self.options.check:
            return served
        return _of_default(self._case(launch, where), "not checked")

    def forget(self, *args: Any, **kwargs: Any) -> None:
        """Measure again at the next call: this call if arguments are given, else all calls.

        Raises ValueError as `explain` does, and StoreFailed if the stored results cannot be changed.
        """
        with self._lock:
            if args or kwargs:
                case = self._case(self._launch(args, kwargs, None))
                case.cache.forget(case.problem)
            else:
                forget_all(self.options.results, self.name)
            self._ready.clear()
            self._untuned.clear()
            self._decided.clear()
            self._waited.clear()

    def _launch(self, args: tuple, kwargs: Mapping[str, Any], grid: Any) -> Launch:
        arguments = {**dict(zip(self.arg_names, args)), **kwargs}
        return Launch(self.fn, args, kwargs, grid, arguments, self.options.post_hook)

    def _key(self, arguments: Mapping[str, Any]) -> tuple:
        """As in Triton: the values of the arguments in `key`, and the dtypes of all tensors. Also the values of
        constants, the dtypes of tensors that other arguments hold, their device, and functions that the kernel gets,
        because they are part of its code. All with the names of the arguments: which of them a call leaves out is a
        part of its key."""
        values = [
            (name, type(arguments[name]), _hashable(arguments[name])) for name in self.deciding if name in arguments
        ]
        some = [each for name in self.arg_names for each in typed(name, arguments.get(name))]
        device = getattr(some[0][1], "device", None) if some else None
        dtypes = [(name, each.dtype) for name, each in some]
        return (*values, *dtypes, device, *functions(arguments.values()))

    def _would_serve(self, launch: Launch, otherwise: str, where: str | None = None) -> Served:
        try:
            case = self._case(launch, where)
            return self._known(case) or _of_default(case, reason_not_to_tune() or otherwise)
        except StoreFailed as error:
            return self._default(launch, error, str(error), warns=False)

    def _serve(self, launch: Launch, form: tuple | None = None) -> Served:
        """What is known, else what tuning finds if it is enabled, else the default. form: of the call, which the next
        one of that form finds at once."""
        disabled, key = reason_not_to_tune(), self._key(launch.arguments)
        if disabled is not None and key in self._untuned:
            return self._untuned[key]
        with self._lock:
            if key not in self._decided:
                served, is_final = self._first(launch, key, disabled)
                (self._decided if is_final else self._untuned)[key] = served
                log.info("%s %s: %s", self.name, key, served.why)
                if not is_final:
                    return served
            served = self._decided[key]
            with suppress(TypeError):
                if form is not None:
                    self._ready[form] = served.config, served.config.all_kwargs()
            return served

    def _first(self, launch: Launch, key: tuple, disabled: str | None) -> tuple[Served, bool]:
        """(what serves a key that is not decided, whether that is final)."""
        try:
            return self._found(launch, key, disabled)
        except StoreFailed as error:
            return self._default(launch, error, str(error)), True
        except NothingWritten as error:  # the next calls may show what the kernel writes
            self._unseen[key] = self._unseen.get(key, 0) + 1
            is_final = self._unseen[key] >= UNSEEN
            return self._default(launch, error, f"{UNCHECKED}: {error}", warns=is_final), is_final
        except CannotCheck as error:
            return self._default(launch, error, f"{UNCHECKED}: {error}"), True

    def _found(self, launch: Launch, key: tuple, disabled: str | None) -> tuple[Served, bool]:
        case = self._case(launch)
        served = self._stored(case, launch, disabled)
        if served is None and len(case.choices) == 1:
            served = Served(case.choices.config(case.default), "it is the only configuration")
        if served is not None:
            return served, True
        if disabled is not None or self.options.effort == "none":
            return _of_default(case, disabled or "effort is none"), False
        launch.check(case.choices.config(case.default))
        what = f"{self.name} {case.problem} {case.device.key} {self.options.place}"
        with _alone(what, 0.0 if key in self._waited else WAIT) as waited:
            if waited is None:
                self._waited.add(key)  # later calls look, and do not wait
                return _of_default(case, "another process is tuning it"), False
            if waited:
                case = self._case(launch)
                served = self._stored(case, launch, disabled)
            return served or self._tune(case, key, launch), True

    def _default(self, launch: Launch, error: Exception, reason: str, *, warns: bool = True) -> Served:
        """The first configuration, with a warning that says why nothing else serves; once for each kind of error."""
        if warns:
            self._warn(type(error), f"{self.name} is not tuned, and its first configuration serves: {reason}")
        return Served(next(self._choices(launch).configs()), f"the first configuration: {reason}")

    def _warn(self, kind: type, message: str, calls: int = 6) -> None:
        """Warn once for each kind; calls: from here to where the kernel is called."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, RuntimeWarning, stacklevel=calls)

    def _case(self, launch: Launch, where: str | None = None) -> Case:
        """The problem of a call and its configurations."""
        arguments = launch.arguments
        try:
            held = dict(tensors(arguments))
        except CannotCheck:
            held = {name: each for name, each in arguments.items() if isinstance(each, Tensor)}
        some = list(held.values())
        where = where or (str(some[0].device) if some else usual_device())
        if whole := [name for name in self.keys if isinstance(arguments.get(name), Tensor)]:
            hint = "name numbers, such as its size; the dtypes of tensors count anyway"
            raise ValueError(f"key of {self.name} names {whole[0]!r}, which is a tensor: {hint}.")
        values = [(name, arguments[name]) for name in self.deciding if name in arguments]
        sizes = tuple((name, value) for name, value in values if type(value) is int)
        others = [(name, value) for name, value in values if type(value) is not int and not functions([value])]
        flags = [(name, configurations.text_of(value)) for name, value in others]  # functions are a part of the code
        dtyped = {name: each for name, each in arguments.items() if hasattr(each, "dtype")}
        flags += [(f"{name}.dtype", str(each.dtype)) for name, each in {**dtyped, **held}.items()]
        if configurations.interpreted(self.fn):
            flags.append(("interpreted", "True"))
        dtype = str(some[0].dtype).removeprefix("torch.") if some else ""
        problem = Problem(self.name, torch.device(where).type, dtype, sizes, tuple(flags))
        choices = self._choices(launch)
        code = source(self.fn, self._given, functions(arguments.values()))
        device = fingerprint(where)
        cache = Cache(self.options.results, self.name, device, lambda name: code)
        return Case(problem, device, where, code, choices, cache)

    @cached_property
    def _given(self) -> list[Any]:
        """Functions that configurations give to the kernel, and their hooks."""
        if (space := self.options.space) is not None:
            return [each for values in space.values() for each in functions(values)]
        return [found for each in self.configs for found in functions([each.pre_hook, *each.kwargs.values()])]

    def _choices(self, launch: Launch) -> Configurations:
        """The configurations of a call. Raises ValueError if none is left."""
        options = self.options
        try:
            if options.space is not None:
                return configurations.combined(options.space, options.constraints, options.default, launch.arguments)
            positional = dict(zip(self.arg_names, launch.args))
            named = {"grid": launch.grid, "warmup": False, **launch.kwargs}
            return configurations.listed(configurations.pruned(self.configs, options.prune, positional, named))
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error

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
            with signals_pass():
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
        effort = None if disabled else self.options.effort
        finals, note = case.cache.compared(case.problem, case.choices.signature, effort), ""
        if finals is None and disabled:
            finals, note = _among_others(case), ", in a comparison with other configurations"
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
        message = finals[decision.choice].outcome.message
        why = f"it was tuned: {decision.why}{note}{_doubt(message)}"
        config, is_checked = case.choices.config(decision.choice), message.startswith(CHECKED)
        return Served(config, why, decision.milliseconds, is_checked, decision.choice)

    def _bench(self, case: Case, launch: Launch, effort: Effort) -> KernelBench:
        """Raises CannotCheck if the tensors cannot be copied, unless results need not be checked."""
        options, hook, blamed = self.options, self.options.pre_hook, launch.with_blame()
        named = (options.reset_to_zero, options.restore_value) if hook is None else ((), ())
        limit = LIMITS[options.effort] if options.limit is None else options.limit
        check = None
        if options.check:
            more: dict[str, Any] = {"deterministic": options.deterministic, "seed": options.seed, "pre_hook": hook}
            check = OutputCheck(blamed, *named, **more, longest=limit)
        try:
            buffers = Buffers(launch.arguments, *named, whole=True)
        except CannotCheck:
            if options.check:
                raise
            buffers = Buffers(launch.arguments, *named, whole=False)
        timer = options.timer or Clocked(case.where, options.clock)
        within = limit if options.isolate else None
        return KernelBench(case, blamed, buffers, timer, effort, check=check, pre_hook=hook, limit=within)

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
            hints=partial(case.hints, effort.evaluations),
            deadline=time.monotonic() + (BUDGETS[effort.name] if options.budget is None else options.budget),
        )
        with signals_pass():
            decision = self.decisions[key] = search.run()
        self.bench_time = time.monotonic() - began
        self.configs_timings = case.timings(search.known)
        if decision.choice is None:
            raise self._nothing_runs(case, search, bench)
        config = case.choices.config(decision.choice)
        if options.pre_hook is not None:
            options.pre_hook({**launch.arguments, **config.all_kwargs()}, reset_only=True)
        doubt = _doubt(search.known[decision.choice].outcome.message)
        if doubt:
            self._warn(TunedKernel, f"the first configuration of {self.name} serves{doubt}", 7)
        rest = "" if search.in_time else "; its tuning did not end, and the next process continues it"
        return Served(config, f"just tuned: {decision.why}{doubt}{rest}", decision.milliseconds, choice=decision.choice)

    def _nothing_runs(self, case: Case, search: Search, bench: KernelBench) -> Exception:
        """The error of a call that no configuration can run: the caller's own, if it raised one."""
        error = bench.errors.get(case.default)
        if isinstance(error, CallFailed):
            return error.error
        first, tried = search.known[case.default].outcome, f"{len(search.known)} of {len(case.choices)}"
        if first.kind in (Kind.OUT_OF_MEMORY, Kind.KILLED):  # the call alone may have room
            what = "ran out of memory" if first.kind is Kind.OUT_OF_MEMORY else "was killed"
            found: Exception = CannotCheck(f"the first one {what}: {first.message}")
        else:
            message = f"{self.name}: no configuration of it runs. The first one: {first.message}. {tried} were tried."
            found = RuntimeError(message + SLOW * (first.kind is Kind.TIMED_OUT))
        found.__cause__ = error
        return found


def reason_not_to_tune() -> str | None:
    """Why nothing may be tuned now: never where that would be recorded, traced, or come as a surprise.

    None if tuning is enabled. Raises ValueError if $NAS_TUNING is not on or off.
    """
    setting = os.environ.get(SWITCH, "")
    if setting and setting not in SETTINGS:
        raise ValueError(f"{SWITCH} must be one of {', '.join(SETTINGS)}, but is {setting!r}.")
    if torch.compiler.is_compiling():
        return "nothing is tuned inside a trace of torch.compile"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "nothing is tuned inside the capture of a CUDA graph"
    if setting == "off":
        return f"{SWITCH}=off"
    if not setting and "PYTEST_CURRENT_TEST" in os.environ:
        return f"nothing is tuned inside a test unless {SWITCH}=on"
    return None


@contextmanager
def _alone(what: str, longest: float) -> Iterator[bool | None]:
    """Inside the block this process is the only one of this machine that tunes `what`. It gives whether the process had
    to wait, or None if it waited in vain for `longest` seconds; then other processes are in the block too. Where no
    lock file can be opened, it does not wait. The system releases the lock if its process ends."""
    file, waited = _lock_file(what), False
    lock = FileLock(file, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            lock.acquire(timeout=longest)
            waited = True
        except Timeout:
            yield None
            return
    except OSError:  # the folder is read-only, or somebody else's file is in its place
        yield False
        return
    try:
        yield waited
    finally:
        with suppress(OSError):  # Windows deletes no open file; a lock of a deleted file does not count
            file.unlink()
        lock.release()


def _lock_file(what: str) -> Path:
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"tessera-tuning-{owner}-{name}.lock"


def _of_default(case: Case, reason: str) -> Served:
    return Served(case.choices.config(case.default), case.missed(reason))


def _doubt(message: str) -> str:
    """Why the reference may be wrong, from the message of its outcome; empty if nothing says so."""
    _, found, why = message.partition(f"; {DOUBTED}")
    return f"; {DOUBTED}{why}" if found else ""


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _held(value: Any) -> Any:
    """What of an argument without a plain type decides: its own dtype, those of the tensors it holds, or a function."""
    found = typed("", value)
    if not found and callable(value):
        return value
    return (*((name, each.dtype, each.device) for name, each in found), *functions([value]))


def _among_others(case: Case) -> dict[Choice, Known] | None:
    """The newest comparison, if the default took part or cannot run. Else the others were checked against another
    default, which may be wrong."""
    finals = next(reversed(case.cache.finals(case.problem).values()), {})
    known = finals.get(case.default) or case.cache.known(case.problem).get(case.default)
    if known is None or (known.milliseconds is None and not is_valid(known.outcome, case.default)):
        return None
    return finals if case.default in finals or known.milliseconds is None else None
