"""Records what `triton.autotune` measures: `with tuner.listen(): ...`, or `tuner.listen()` until the process ends.

From version 3.8 Triton calls a listener; in earlier versions its autotuner is wrapped. An existing listener is still
called. A key that Triton has cached, in this process or on disk, is recorded when its timings are read, but only once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Problem
from nas.store.records import Measurement
from tuner import problems
from tuner.outcome import Kind, Outcome
from tuner.search.cache import row
from tuner.search.results import Results, results_at
from tuner.triton.configurations import choice_of, interpreted, values
from tuner.triton.source import function_of, source

NO_TIME = "triton.autotune has no time for it: it lacks resources, breaks an assertion, or ptxas rejected it"


def listen(store: str | Path | None = None) -> Listener:
    """Record what every `triton.autotune`d kernel measures from now on, until the listener is closed.

    store: a SQLite file or a URL; by default $NAS_STORAGE, else a file in the user's data folder.
    Raises ImportError without Triton.
    """
    return Listener(results_at(store)).open()


class Listener:
    """Writes rows into `results`; `recorded` counts them."""

    def __init__(self, results: Results) -> None:
        self.results, self.recorded, self.has_warned = results, 0, False

    def open(self) -> Listener:
        """Record until `close`."""
        _install()
        _listening.append(self)
        return self

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop recording. Several listeners may be closed in any order."""
        if self in _listening:
            _listening.remove(self)

    def __call__(
        self,
        *,
        fn: Any,
        key: Sequence[Any],
        best_config: Any,
        configs_timings: Mapping[Any, Any],
        duration: float | None,
        cache_hit: bool,
        names: Sequence[str] = (),
        device: str | None = None,
    ) -> None:
        """Record a decision of an autotuner, as Triton reports it; names: of the first values of `key`."""
        try:
            where = device or (f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu")
            here, function = fingerprint(where), function_of(fn)
            name, text = f"{function.__module__}.{function.__qualname__}", source(fn)
            problem = _problem(name, torch.device(where).type, key, names, interpreted(fn))
            about = name, problems.text(problem, None), problem.dtype
            rows = [
                row(*about, choice_of(values(config)), text, _outcome(times))
                for config, times in configs_timings.items()
            ]
            if cache_hit:
                known = [_identity(each) for each in self.results.rows(name, about[1]) if each.device == here.key]
                rows = [each for each in rows if _identity(each) not in known]
            if rows:
                self.results.add(here.to_dict(), rows)
                self.recorded += len(rows)
        except Exception as error:  # the user's kernel has run, and must not fail because of its record
            if not self.has_warned:
                self.has_warned = True
                message = f"tuner.listen records nothing: what it records cannot be written: {error}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)


_listening: list[Listener] = []


def _tell(**arguments: Any) -> None:
    for each in list(_listening):
        each(**arguments)


@cache
def _install() -> None:
    """Make Triton call all listeners that are open, in this process from now on."""
    from triton import knobs
    from triton.runtime.autotuner import Autotuner

    if not hasattr(knobs.autotuning, "listener"):
        Autotuner.run = _watched(Autotuner.run)
        return
    before = knobs.autotuning.listener

    def told(**arguments: Any) -> None:
        if before is not None:
            before(**arguments)
        _tell(**arguments)

    knobs.autotuning.listener = told


def _watched(run: Any) -> Callable[..., Any]:
    """`run` of an autotuner, which also tells the timings that are new after a call."""

    def watched(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        if not _listening:
            return run(tuner, *args, **kwargs)
        timings, seconds = getattr(tuner, "configs_timings", None), getattr(tuner, "bench_time", None)
        keys = set(tuner.cache)
        result = run(tuner, *args, **kwargs)
        found = getattr(tuner, "configs_timings", None)
        new = [key for key in tuner.cache if key not in keys]
        if found is not None and found is not timings and new:
            measured = getattr(tuner, "bench_time", None) != seconds
            _tell(
                fn=tuner.fn,
                key=new[-1],
                best_config=tuner.best_config,
                configs_timings=found,
                duration=tuner.bench_time if measured else None,
                cache_hit=not measured,
                names=tuner.keys,
                device=_device((*args, *kwargs.values())),
            )
        return result

    return watched


def _problem(name: str, kind: str, key: Sequence[Any], names: Sequence[str], interpreted: bool) -> Problem:
    """The problem that a key describes. Triton appends the dtypes, as text, to the values of a key."""
    dtypes = [str(each) for each in key if str(each).startswith("torch.")]
    plain = [each for each in key if not str(each).startswith("torch.")]
    named = [(names[number] if number < len(names) else f"key{number}", each) for number, each in enumerate(plain)]
    sizes = tuple((each, value) for each, value in named if type(value) is int)
    flags = [(each, str(value)) for each, value in named if type(value) is not int]
    flags += [(f"dtype{number}", each) for number, each in enumerate(dtypes)]
    flags += [("interpreted", "True")] if interpreted else []
    return Problem(name, kind, dtypes[0].removeprefix("torch.") if dtypes else "", sizes, tuple(flags))


def _device(arguments: Sequence[Any]) -> str | None:
    return next((str(each.device) for each in arguments if isinstance(each, torch.Tensor)), None)


def _outcome(times: Any) -> Outcome:
    """times: quantiles as Triton keeps them, the median first."""
    median = float(times[0] if isinstance(times, Sequence) else times)
    if median == float("inf"):
        return Outcome(Kind.BUILD_ERROR, message=NO_TIME)
    return Outcome(Kind.TIMED, (median,))


def _identity(row: Measurement) -> tuple:
    return row.problem, row.configuration, row.source, row.milliseconds
