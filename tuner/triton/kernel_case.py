"""One call of somebody's Triton kernel: its problem, its configurations, and what is known of them."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.dispatch.registry import Choice, Problem
from tuner import problems
from tuner.device import Device
from tuner.measure.measure import timing
from tuner.outcome import Outcome
from tuner.search.notebook import Known
from tuner.triton.buffers import Buffers
from tuner.triton.kernel_memory import Row, configuration_text, outcome_of
from tuner.triton.kernel_memory import row as kernel_row

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # of a triton.Config beside its keywords


@dataclass(frozen=True)
class Launch:
    """A call of a kernel: what it was called with, and the same by name."""

    kernel: Any
    args: tuple
    kwargs: Mapping[str, Any]
    grid: Any
    arguments: Mapping[str, Any]
    post_hook: Callable[..., Any] | None = None

    def prepare(self, config: Any, ready: Buffers | Callable[..., Any]) -> None:
        """What comes before a run: the configuration's hook, then the buffers or the hook in their place."""
        named = {**self.arguments, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(named)
        ready.prepare() if isinstance(ready, Buffers) else ready(named)

    def run(self, config: Any) -> None:
        """With the settings of `config`. Raises ValueError where the call gives one of them itself."""
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


@dataclass(frozen=True)
class Case:
    """device: its fingerprint; where: as torch names it. source: hash of the kernel's code. choices: a triton.Config
    each, the default first."""

    problem: Problem
    device: Device
    where: str
    source: str
    choices: Mapping[Choice, Any]

    @property
    def text(self) -> str:
        """The problem as rows name it."""
        return problems.text(self.problem, None)

    @property
    def default(self) -> Choice:
        return next(iter(self.choices))

    def known(self, rows: Sequence[Row]) -> dict[Choice, Known]:
        """The newest of every choice, of this problem, source and device."""
        found = {}
        for row in rows:
            if self._valid(row) and (choice := self._choice(row)) is not None:
                found[choice] = _known(row)
        return found

    def finals(self, rows: Sequence[Row]) -> dict[str, dict[Choice, Known]]:
        """Every comparison of this problem, source and device, by its `turns`, oldest first."""
        found: dict[str, dict[Choice, Known]] = {}
        for row in rows:
            if row.get("turns") and self._valid(row):
                choice = self._choice(row) or Choice(str(row["implementation"]), (("gone", row["configuration"]),))
                found.setdefault(row["turns"], {})[choice] = _known(row)
        return found

    def lacks(self, rows: Sequence[Row]) -> str:
        """Why nothing of what is known serves this call."""
        same = [row for row in rows if row["problem"] == self.text]
        if not rows:
            return "nothing of this kernel was tuned"
        if not same:
            return f"these arguments were not tuned, only {len({row['problem'] for row in rows})} others"
        here = [row for row in same if row["source"] == self.source]
        if not here:
            return "the kernel has changed since it was tuned"
        there = [row for row in here if row["device"] == self.device.key]
        if not there:
            return f"it was tuned elsewhere: {_differences(here[-1].get('about') or {}, self.device)}"
        ended = any(row.get("turns") for row in there)
        return "other configurations were tuned" if ended else "its tuning did not end"

    def row(self, choice: Choice, outcome: Outcome, turns: str | None) -> Row:
        """A measurement, as it is kept."""
        problem = self.problem
        return kernel_row(problem.operation, self.text, problem.dtype, text_of(choice), self.source, outcome, turns)

    def _valid(self, row: Row) -> bool:
        return (row["problem"], row["source"], row["device"]) == (self.text, self.source, self.device.key)

    def _choice(self, row: Row) -> Choice | None:
        return next((choice for choice in self.choices if text_of(choice) == row["configuration"]), None)


def _known(row: Row) -> Known:
    outcome = outcome_of(row)
    return Known(outcome, timing(outcome.samples).median if outcome.samples else None, row.get("turns"))


def _differences(about: Mapping[str, Any], here: Device) -> str:
    """What of the two fingerprints differs."""
    known = json.loads(json.dumps(here.to_dict()))
    names = [name for name in ("name", "driver", "torch", "triton", "capability") if about.get(name) != known[name]]
    return ", ".join(f"{name} {about.get(name) or 'none'} instead of {known[name] or 'none'}" for name in names)


def text_of(choice: Choice) -> str:
    """The configuration of a choice as rows name it."""
    return configuration_text(dict(choice.configuration))


def config(values: Any) -> Any:
    """A triton.Config of a mapping; one that is one already stays as it is."""
    import triton

    if isinstance(values, triton.Config):
        return values
    own = {name: value for name, value in values.items() if name not in OPTIONS}
    return triton.Config(own, **{name: value for name, value in values.items() if name in OPTIONS})


def values(config: Any) -> dict[str, Any]:
    """The settings of a triton.Config; one with a hook is another than one without."""
    found = dict(config.all_kwargs())
    if config.pre_hook is not None:
        found["pre_hook"] = getattr(config.pre_hook, "__qualname__", str(config.pre_hook))
    return found


def product(space: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination."""
    return [dict(zip(space, each, strict=True)) for each in itertools.product(*space.values())]


def pruned(
    configs: Sequence[Any],
    by: Mapping[str, Any],
    names: Sequence[str],
    arguments: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> list[Any]:
    """As Triton prunes: by `early_config_prune`, then the `top_k` of which `perf_model` expects most; in their order.

    Raises ValueError where none is left, TypeError for a `top_k` that is neither a share nor a count.
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
    """Whether Triton's interpreter runs it, whose times say nothing of a compiled kernel's."""
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "InterpretedFunction":
            return True
        kernel = getattr(kernel, "fn", None)
    return False
