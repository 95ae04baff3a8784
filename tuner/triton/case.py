"""One call of a user's Triton kernel: its arguments and grid, its problem, and what is known of its configurations.

A mistake in the caller's part, such as a missing argument, is raised to the caller before anything is measured, and is
never counted against a configuration.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from kernels.dispatch.device import Device, fingerprint
from kernels.dispatch.registry import Choice, Problem
from tuner.outcome import CallFailed, Outcome
from tuner.search import transfer
from tuner.search.cache import Cache, Known
from tuner.search.candidates import Candidates, Group
from tuner.search.results import EVERY, FORGOTTEN, Results
from tuner.search.search import CUT
from tuner.strategies.contract import Hints
from tuner.triton.configurations import Configurations
from tuner.triton.copies import Buffers
from tuner.triton.source import function_of

WINNERS = 3  # of other calls, measured before the search begins
HINTED = 4096  # configurations of a space that other calls give hints for, at most
COMPARED = "compared with what the first configuration gives"  # in the message of a wrong result
FAR = 20.0  # the logarithm of the factor between two sizes, at most


@dataclass(frozen=True)
class Launch:
    """A call of a kernel. args, kwargs: as given; arguments: all of them by name."""

    kernel: Any
    args: tuple
    kwargs: Mapping[str, Any]
    grid: Any
    arguments: Mapping[str, Any]
    post_hook: Callable[..., Any] | None = None

    def prepare(self, config: Any, ready: Buffers | Callable[..., Any]) -> None:
        """What comes before a run: the configuration's own hook, then the buffers or the hook that replaces them."""
        named = {**self.arguments, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(named)
        ready.prepare() if isinstance(ready, Buffers) else ready(named)

    def run(self, config: Any) -> Any:
        """Launch with the settings of `config` -> the compiled kernel, None if Triton interprets it.

        Raises what the kernel or the grid raises.
        """
        settings = config.all_kwargs()
        failed: Exception | None = None
        try:
            return self.kernel.run(*self.args, grid=self.grid, warmup=False, **self.kwargs, **settings)
        except Exception as error:
            failed = error
            raise
        finally:
            if self.post_hook is not None:
                self.post_hook({**self.arguments, **settings}, exception=failed)

    def check(self, config: Any) -> None:
        """Raises TypeError if the call lacks an argument or the grid is no tuple, ValueError if the call gives an
        argument that is tuned, and what the grid function and the heuristics raise for `config`."""
        function, settings = function_of(self.kernel), config.all_kwargs()
        if twice := sorted(settings.keys() & self.arguments.keys()):
            raise ValueError(f"{', '.join(twice)} is given in the call, and is there to be tuned.")
        named = self._named(config)
        if missing := [name for name in inspect.signature(function).parameters if name not in named]:
            raise TypeError(f"{function.__name__}() lacks the argument {', '.join(map(repr, missing))}.")
        grid = self.grid_of(config)
        if not (hasattr(grid, "__len__") and 1 <= len(grid) <= 3):
            raise TypeError(f"the grid of {function.__name__} must be a tuple of 1 to 3 numbers, but is {grid!r}.")

    def grid_of(self, config: Any) -> Any:
        """The grid with `config`. Raises what the grid function and the heuristics raise."""
        if not callable(self.grid):
            return self.grid
        named = self._named(config)
        return self.grid({name: named[name] for name in inspect.signature(function_of(self.kernel)).parameters})

    def with_blame(self) -> Launch:
        """The same launch, whose grid function raises CallFailed for any error of its own."""
        if not callable(grid := self.grid):
            return self

        def blamed(meta: Any) -> Any:
            try:
                return grid(meta)
            except Exception as error:
                raise CallFailed(error) from error

        return replace(self, grid=blamed)

    def _named(self, config: Any) -> dict[str, Any]:
        """All arguments of the kernel by name, as far as they are given."""
        parameters = inspect.signature(function_of(self.kernel)).parameters
        defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
        named = {**defaults, **self.arguments, **config.all_kwargs()}
        kernel = self.kernel
        while kernel is not None and not inspect.isfunction(kernel):
            for name, value in (getattr(kernel, "values", None) or {}).items():  # of `triton.heuristics`
                named[name] = value(named)
            kernel = getattr(kernel, "fn", None)
        return named


def forget_all(results: Results, kernel: str) -> None:
    """Measure all calls of a kernel again, on all devices of this machine."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    for device in {each.key: each for each in map(fingerprint, names)}.values():
        Cache(results, kernel, device, lambda name: "").forget()


def is_valid(outcome: Outcome, default: Choice) -> bool:
    """Whether an outcome says anything if `default` is the reference. A result that differed from that of another
    reference may be right: perhaps that reference was wrong, and the user has removed it."""
    return COMPARED not in outcome.message or outcome.message.endswith(f"{COMPARED}: {default}")


class _Candidates(Candidates):
    """The configurations of a kernel, all in one group."""

    def is_valid(self, outcome: Outcome) -> bool:
        return is_valid(outcome, self.default)

    def promising(self, cache: Cache) -> list[Choice]:
        """The fastest configurations of the most similar calls, also on other devices or recorded by `tuner.listen`."""
        choices: dict[Choice, None] = {}
        for _, times in _similar(cache, self.problem):
            valid = {choice: each for choice, each in times.items() if not math.isnan(each)}
            if valid:
                choices[min(valid, key=lambda each: (valid[each], str(each)))] = None
        return [each for each in choices if self.includes(each)][:WINNERS]


def _similar(cache: Cache, problem: Problem) -> list[tuple[float, dict[Choice, float]]]:
    """For each other call of the kernel how far it is, and milliseconds by choice, NaN of one that failed."""
    here = cache.device.key
    found = {key: times for key, times in transfer.measured_alike(cache).items() if key != (here, problem)}
    far = {key: _distance(key[1], problem) + (key[0] != here) for key in found}
    return [(far[key], found[key]) for key in sorted(found, key=lambda each: far[each])]


def _distance(one: Problem, other: Problem) -> float:
    """Another kind of device is far, then another dtype, then the largest factor between two sizes."""
    sizes = dict(one.sizes)
    ratios = [abs(math.log(max(sizes[name], 1) / max(size, 1))) for name, size in other.sizes if name in sizes]
    factor = min(max(ratios, default=FAR), FAR)
    return 3 * FAR * (one.device != other.device) + 1.5 * FAR * (one.dtype != other.dtype) + factor


@dataclass(frozen=True)
class Case:
    """device: the fingerprint. where: the device as torch names it. source: hash of the kernel's code. cache: the
    results of this kernel on this device."""

    problem: Problem
    device: Device
    where: str
    source: str
    choices: Configurations
    cache: Cache

    @property
    def default(self) -> Choice:
        return self.choices.default

    @property
    def candidates(self) -> Candidates:
        group = Group(self.default, self.choices.space, self.choices, compiled=True)
        return _Candidates(self.problem, self.default, self.choices.signature, [group])

    def hints(self, most: int, group: Group) -> Hints | None:
        """The times of similar calls as hints for this one. None if there are none, if the space is too large for them,
        or if it has at most `most` configurations, which are all measured."""
        if not most < len(self.choices) <= HINTED:
            return None
        similar = _similar(self.cache, self.problem)[:WINNERS]
        try:
            return transfer.of_similar(group, [(1 / (1 + distance), times) for distance, times in similar])
        except ImportError:  # of scikit-learn, which predicts what the others did not measure
            return None

    def missed(self, reason: str) -> str:
        """Why the default serves; reason: why it is not tuned now."""
        return f"the first configuration: {self._why_nothing_is_known()}; {reason}"

    def timings(self, known: Mapping[Choice, Known]) -> dict[Any, list[float]]:
        """As Triton's autotuner keeps them: the median and two quantiles of each one, infinite if it failed."""
        found = {}
        for choice, each in known.items():
            if choice in self.choices:
                samples = each.outcome.samples
                times = np.quantile(samples, (0.5, 0.2, 0.8)).tolist() if samples else [math.inf] * 3
                found[self.choices.config(choice)] = times
        return found

    def _why_nothing_is_known(self) -> str:
        """Why no stored result serves this call."""
        same = self.cache.rows_of(self.problem)
        if all(row.problem == EVERY for row in same):
            if others := {row.problem for row in self.cache.results.rows(self.problem.operation)} - {EVERY}:
                return f"these arguments were not tuned, only {len(others)} others"
            return "nothing of this kernel was tuned"
        own = [row for row in same if row.device == self.device.key]
        if own and own[-1].failure == FORGOTTEN and any(row.problem != EVERY for row in own):
            return "what was known of these arguments was forgotten"
        unchanged = [row for row in same if row.source == self.source]
        if not unchanged:
            return "the kernel has changed since it was tuned"
        here = [row for row in unchanged if row.device == self.device.key]
        if not here:
            other = self.cache.results.devices().get(unchanged[-1].device, {})
            return f"it was tuned elsewhere: {_differences(other, self.device)}"
        compared = [row.turns.split("/") for row in here if row.turns]
        efforts = [effort for effort, signature, *_ in compared if signature == self.choices.signature]
        if efforts and efforts[-1] != CUT:
            return f"it was tuned with less effort, {efforts[-1]}"
        return "other configurations were tuned" if compared and not efforts else "its tuning did not end"


def _differences(other: Mapping[str, Any], here: Device) -> str:
    """What differs between two fingerprints."""
    known = json.loads(json.dumps(here.to_dict()))
    names = [name for name in ("name", "driver", "torch", "triton", "capability") if other.get(name) != known[name]]
    return ", ".join(f"{name} {other.get(name) or 'none'} instead of {known[name] or 'none'}" for name in names)
