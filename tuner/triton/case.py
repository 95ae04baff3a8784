"""One call of a user's Triton kernel: its problem, its configurations, and what is known of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels.dispatch.registry import Choice, Problem
from tuner import problems
from tuner.device import Device, fingerprint
from tuner.outcome import Outcome
from tuner.search import transfer
from tuner.search.backends import Backend
from tuner.search.cache import Cache, Known, Sources
from tuner.search.cache import choice_of as choice_of_row
from tuner.search.candidates import Candidates, Group
from tuner.search.row import EVERY, FORGOTTEN
from tuner.search.search import CUT
from tuner.strategies.contract import Hints
from tuner.triton.checking.buffers import Buffers
from tuner.triton.configurations import space_of, values
from tuner.triton.large_space import Combinations, Numbered

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


def forget_all(backend: Backend, kernel: str) -> None:
    """Measure all calls of a kernel again, on all devices of this machine."""
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    for device in {each.key: each for each in map(fingerprint, names)}.values():
        Cache(backend, kernel, device, Sources.of_kernel("")).forget()


def is_valid(outcome: Outcome, default: Choice) -> bool:
    """Whether an outcome says anything if `default` is the reference. A result that differed from that of another
    reference may be right: perhaps that reference was wrong, and the user has removed it."""
    return COMPARED not in outcome.message or outcome.message.endswith(f"{COMPARED}: {default}")


class _Configurations(Candidates):
    """The configurations of a kernel."""

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


def hints(cache: Cache, problem: Problem, most: int, group: Group) -> Hints | None:
    """The times of similar calls as hints for this one. None if there are none, if the space is too large for them, or
    if it has at most `most` configurations, which are all measured."""
    if group.space is None or not most < len(group.space) <= HINTED:
        return None
    others = []
    for distance, times in _similar(cache, problem)[:WINNERS]:
        milliseconds, known = np.full(len(group.space), np.nan), np.zeros(len(group.space), dtype=bool)
        for number, choice in group.numbers_of(times):
            milliseconds[number], known[number] = times[choice], True
        others.append(transfer.OtherDevice(group.space, milliseconds, known, 1 / (1 + distance)))
    try:
        return transfer.hints(group.space, others)
    except ImportError:  # of scikit-learn, which predicts what the others did not measure
        return None


def _similar(cache: Cache, problem: Problem) -> list[tuple[float, dict[Choice, float]]]:
    """For each other call of the kernel how far it is, and milliseconds by configuration, NaN of one that failed."""
    found: dict[tuple[str, Problem], dict[Choice, float]] = {}
    for row in cache.rows_of_this_code():
        other = problems.of_text(row.operation, row.dtype, row.problem)
        if other is not None and row.failure != FORGOTTEN and (row.device, other) != (cache.device.key, problem):
            time = math.nan if row.milliseconds is None else row.milliseconds
            found.setdefault((row.device, other), {})[choice_of_row(row)] = time
    far = {key: _distance(key[1], problem) + (key[0] != cache.device.key) for key in found}
    return [(far[key], found[key]) for key in sorted(found, key=lambda each: far[each])]


def _distance(one: Problem, other: Problem) -> float:
    """Another kind of device is far, then another dtype, then the largest factor between two sizes."""
    sizes = dict(one.sizes)
    ratios = [abs(math.log(max(sizes[name], 1) / max(size, 1))) for name, size in other.sizes if name in sizes]
    factor = min(max(ratios, default=FAR), FAR)
    return 3 * FAR * (one.device != other.device) + 1.5 * FAR * (one.dtype != other.dtype) + factor


class Case:
    """device: the fingerprint. where: the device as torch names it. source: hash of the kernel's code. choices: a
    triton.Config for each, the default first. cache: the results of this kernel on this device."""

    def __init__(
        self, problem: Problem, device: Device, where: str, source: str, choices: Mapping[Choice, Any], backend: Backend
    ) -> None:
        self.problem, self.device, self.where, self.source, self.choices = problem, device, where, source, choices
        self.large = choices if isinstance(choices, Combinations) else None
        self.default = self.large.default if self.large is not None else next(iter(choices))
        self.cache = Cache(backend, problem.operation, device, Sources.of_kernel(source), at_once=False)

    @property
    def signature(self) -> str:
        """A hash of the default and of all configurations."""
        if self.large is not None:
            return self.large.signature
        default, *others = self.choices
        text = repr((default, sorted(map(str, others))))  # stored, so it must stay the same
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def candidates(self) -> Candidates:
        """All configurations in one group."""
        if self.large is not None:
            group = Group(self.default, self.large.space, Numbered(self.large), compiled=True)
        else:
            space = space_of([values(config) for config in self.choices.values()])
            group = Group(self.default, space, list(self.choices), compiled=True)
        return _Configurations(self.problem, self.default, self.signature, [group])

    def missed(self, reason: str) -> str:
        """Why the default serves; reason: why it is not tuned now."""
        return f"the first configuration: {self.why_nothing_is_known()}; {reason}"

    def timings(self, known: Mapping[Choice, Known]) -> dict[Any, list[float]]:
        """As Triton's autotuner keeps them: the median and two quantiles of each one, infinite if it failed."""
        found = {}
        for choice, each in known.items():
            if choice in self.choices:
                samples = each.outcome.samples
                times = np.quantile(samples, (0.5, 0.2, 0.8)).tolist() if samples else [math.inf] * 3
                found[self.choices[choice]] = times
        return found

    def why_nothing_is_known(self) -> str:
        """Why no stored result serves this call."""
        same = self.cache.rows_of(self.problem)
        if all(row.problem == EVERY for row in same):
            if others := {row.problem for row in self.cache.rows} - {EVERY}:
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
            other = self.cache.backend.devices().get(unchanged[-1].device, {})
            return f"it was tuned elsewhere: {_differences(other, self.device)}"
        compared = [row.turns.split("/") for row in here if row.turns]
        efforts = [effort for effort, signature, *_ in compared if signature == self.signature]
        if efforts and efforts[-1] != CUT:
            return f"it was tuned with less effort, {efforts[-1]}"
        return "other configurations were tuned" if compared and not efforts else "its tuning did not end"


def _differences(other: Mapping[str, Any], here: Device) -> str:
    """What differs between two fingerprints."""
    known = json.loads(json.dumps(here.to_dict()))
    names = [name for name in ("name", "driver", "torch", "triton", "capability") if other.get(name) != known[name]]
    return ", ".join(f"{name} {other.get(name) or 'none'} instead of {known[name] or 'none'}" for name in names)
