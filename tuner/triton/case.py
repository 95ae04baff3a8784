"""One call of a user's Triton kernel: its problem, its configurations, and what is known of them."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.dispatch.registry import Choice, Problem
from tuner import problems
from tuner.device import Device
from tuner.search.backends import Backend
from tuner.search.cache import Cache, Sources
from tuner.search.candidates import Candidates, Group
from tuner.space import TuningSpace
from tuner.triton.buffers import Buffers

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # of a triton.Config, not of the kernel
IMPLEMENTATION = "triton"  # a user's kernel has only this one


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

    def run(self, config: Any) -> None:
        """Launch with the settings of `config`. Raises ValueError if the call itself gives one of them."""
        settings = config.all_kwargs()
        if twice := sorted(settings.keys() & self.arguments.keys()):
            raise ValueError(f"{', '.join(twice)} is given in the call, and is there to be tuned.")
        failed: Exception | None = None
        try:
            self.kernel.run(*self.args, grid=self.grid, warmup=False, **self.kwargs, **settings)
        except Exception as error:
            failed = error
            raise
        finally:
            if self.post_hook is not None:
                self.post_hook({**self.arguments, **settings}, exception=failed)


class Case:
    """device: the fingerprint. where: the device as torch names it. source: hash of the kernel's code. choices: a
    triton.Config for each, the default first. cache: the results of this kernel on this device."""

    def __init__(
        self, problem: Problem, device: Device, where: str, source: str, choices: Mapping[Choice, Any], backend: Backend
    ) -> None:
        self.problem, self.device, self.where, self.source, self.choices = problem, device, where, source, choices
        self.default = next(iter(choices))
        self.cache = Cache(backend, problem.operation, device, Sources.of_kernel(source))

    @property
    def signature(self) -> str:
        """A hash of the default and of all configurations."""
        default, *others = self.choices
        text = repr((default, sorted(map(str, others))))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def candidates(self) -> Candidates:
        """All configurations in one group."""
        space = space_of([values(config) for config in self.choices.values()])
        group = Group(self.default, space, list(self.choices))
        return Candidates(self.problem, self.default, self.signature, [group])

    def why_nothing_is_known(self) -> str:
        """Why no stored result serves this call."""
        rows, text = self.cache.rows, problems.text(self.problem, None)
        same = [row for row in rows if row.problem == text]
        if not rows:
            return "nothing of this kernel was tuned"
        if not same:
            return f"these arguments were not tuned, only {len({row.problem for row in rows})} others"
        unchanged = [row for row in same if row.source == self.source]
        if not unchanged:
            return "the kernel has changed since it was tuned"
        here = [row for row in unchanged if row.device == self.device.key]
        if not here:
            other = self.cache.backend.devices().get(unchanged[-1].device, {})
            return f"it was tuned elsewhere: {_differences(other, self.device)}"
        return "other configurations were tuned" if any(row.turns for row in here) else "its tuning did not end"


def _differences(other: Mapping[str, Any], here: Device) -> str:
    """What differs between two fingerprints."""
    known = json.loads(json.dumps(here.to_dict()))
    names = [name for name in ("name", "driver", "torch", "triton", "capability") if other.get(name) != known[name]]
    return ", ".join(f"{name} {other.get(name) or 'none'} instead of {known[name] or 'none'}" for name in names)


def choice_of(values: Mapping[str, Any]) -> Choice:
    """A configuration as a choice. A value that JSON cannot hold, such as a dtype, becomes text."""
    plain = (bool, int, float, str)
    some = {name: value if isinstance(value, plain) else str(value) for name, value in values.items()}
    return Choice.of(IMPLEMENTATION, some)


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
    own = {name: value for name, value in values.items() if name not in OPTIONS}
    return triton.Config(own, **{name: value for name, value in values.items() if name in OPTIONS})


def values(config: Any) -> dict[str, Any]:
    """The settings of a triton.Config; one with a hook differs from one without."""
    found = dict(config.all_kwargs())
    if config.pre_hook is not None:
        found["pre_hook"] = getattr(config.pre_hook, "__qualname__", str(config.pre_hook))
    return found


def product(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of values."""
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*space.values())]


def pruned(
    configs: Sequence[Any],
    by: Mapping[str, Any],
    names: Sequence[str],
    arguments: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> list[Any]:
    """Prune as Triton does: by `early_config_prune`, then keep the `top_k` by `perf_model`, in their original order.

    Raises ValueError if no configuration is left, TypeError for a `top_k` that is neither a share nor a count.
    """
    kept = list(configs)
    if prune := by.get("early_config_prune"):
        kept = list(prune(kept, {name: arguments[name] for name in names if name in arguments}, **kwargs))
        if not kept:
            raise ValueError("early_config_prune left no configuration, and must leave one.")
    if model := by.get("perf_model"):
        top = by.get("top_k", 1.0)
        count = int(len(configs) * top) if isinstance(top, float) and top <= 1 else top
        if not isinstance(count, int):
            raise TypeError(f"top_k must be a share of at most 1.0 or a whole number, but got {top!r}.")
        expected = [model(**{**arguments, **each.all_kwargs()}) for each in kept]
        best = sorted(range(len(kept)), key=lambda number: expected[number])[: max(count, 1)]
        kept = [kept[number] for number in sorted(best)]
    return kept


def interpreted(kernel: Any) -> bool:
    """Whether Triton's interpreter runs the kernel; its times say nothing about the compiled kernel."""
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "InterpretedFunction":
            return True
        kernel = getattr(kernel, "fn", None)
    return False
