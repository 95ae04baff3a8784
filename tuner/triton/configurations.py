"""The configurations of a kernel: triton.Config, choices, spaces, pruning."""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np

from kernels.dispatch.registry import Choice
from nas.registry import nearest
from tuner.search.results import USERS
from tuner.space import TuningSpace
from tuner.triton.source import functions, source

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")  # of a triton.Config, not of the kernel


class Configurations(Sequence[Choice]):
    """The configurations of a call by number. Those of a large space are made when they are needed.

    space: of plain values. config: the triton.Config with a number. default: a number. signature: a hash of the default
    and of all configurations.
    """

    def __init__(self, space: TuningSpace, config: Callable[[int], Any], default: int, signature: str) -> None:
        self.space, self._config, self._default, self.signature = space, config, default, signature
        self._numbers: dict[Choice, int] = {}
        self._choices: dict[int, Choice] = {}

    @property
    def default(self) -> Choice:
        return self[self._default]

    def __len__(self) -> int:
        return len(self.space)

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        if number not in self._choices:
            self._choices[number] = choice_of(values(self._config(number)))
            self._numbers[self._choices[number]] = number
        return self._choices[number]

    def __contains__(self, choice: object) -> bool:
        return isinstance(choice, Choice) and self.number(choice) is not None

    def config(self, choice: Choice) -> Any:
        """The triton.Config of a choice. Raises KeyError if it is none of these."""
        if (number := self.number(choice)) is None:
            raise KeyError(str(choice))
        return self._config(number)

    def number(self, choice: Choice) -> int | None:
        """The number of a choice; None if it is none of these."""
        if choice not in self._numbers:
            known = dict(choice.configuration)
            try:
                number = self.space.number({name: known.get(name, "none") for name in self.space.parameters})
            except ValueError:
                return None
            if self[number] != choice:
                return None
        return self._numbers[choice]

    def numbers_of(self, known: Iterable[Choice]) -> list[tuple[int, Choice]]:
        """(number, choice) of those of the known choices that are among these, in order."""
        some = ((self.number(each), each) for each in known)
        return sorted([(number, each) for number, each in some if number is not None], key=lambda pair: pair[0])

    def configs(self) -> Iterator[Any]:
        """All of them, the default first."""
        numbers = [self._default, *(number for number in range(len(self)) if number != self._default)]
        return map(self._config, numbers)


def listed(configs: Sequence[Any]) -> Configurations:
    """The given triton.Configs, each once; the first is the default."""
    some: dict[Choice, Any] = {}
    for each in configs:
        some.setdefault(choice_of(values(each)), each)
    default, *others = some
    text = repr((default, sorted(map(str, others))))
    kept = list(some.values())
    found = Configurations(_space_of(list(some)), kept.__getitem__, 0, hashlib.sha256(text.encode()).hexdigest()[:12])
    found._choices = dict(enumerate(some))
    found._numbers = {choice: number for number, choice in enumerate(some)}
    return found


def combined(
    space: Mapping[str, Sequence[Any]],
    constraints: Sequence[Callable[..., bool]],
    default: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> Configurations:
    """Every combination of values that the constraints allow for a call with `arguments`.

    Raises ValueError if none is left, or if they reject the default.
    """
    plain = {name: {_plain(value): value for value in some} for name, some in space.items()}

    def given(combination: Mapping[str, Any]) -> dict[str, Any]:
        return {name: plain[name][value] for name, value in combination.items()}

    def allows(combination: Mapping[str, Any]) -> bool:
        merged = _Named(arguments, **given(combination))
        return all(each(merged) for each in constraints)

    made = TuningSpace.product({name: list(some) for name, some in plain.items()}, [allows] if constraints else [])
    first = made.number({**made.configuration(0), **{name: _plain(value) for name, value in default.items()}})
    text = f"{first} {list(made.parameters.items())}".encode() + made.places.tobytes()
    configs: dict[int, Any] = {}

    def config_of(number: int) -> Any:
        if number not in configs:
            configs[number] = config(given(made.configuration(number)))
        return configs[number]

    return Configurations(made, config_of, first, hashlib.sha256(text).hexdigest()[:12])


class _Named(dict[str, Any]):
    """What a constraint sees: the arguments of a call and a configuration. A name that is missing is explained."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"a constraint asks for {name!r}.{nearest(name, self)} Known: {', '.join(self)}")


def choice_of(values: Mapping[str, Any]) -> Choice:
    """A configuration as a choice. A value that JSON cannot hold, such as a dtype, becomes text."""
    return Choice.of(USERS, {name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    """A value as JSON holds it. To Python 1, 1.0 and True are equal, but not to a kernel: the last two become text."""
    is_plain = isinstance(value, int | str) or (isinstance(value, float) and not value.is_integer())
    return value if is_plain and not isinstance(value, bool) else text_of(value)


def text_of(value: Any) -> str:
    """A value as text that is the same in every process; a function as its name and the hash of its code."""
    if not (found := functions([value])) or isinstance(value, tuple | list):
        return str(value)
    return f"{getattr(value, '__qualname__', type(value).__name__)} {source(found[0])}"


def _space_of(choices: Sequence[Choice]) -> TuningSpace:
    """The given choices as a space, in their order; a missing parameter has the value "none"."""
    names = list(dict.fromkeys(name for each in choices for name, _ in each.configuration))
    rows = [[dict(each.configuration).get(name, "none") for name in names] for each in choices]
    known = {name: list(dict.fromkeys(row[column] for row in rows)) for column, name in enumerate(names)}
    return TuningSpace(known, np.array([[known[name].index(v) for name, v in zip(names, row)] for row in rows]))


def config(values: Any) -> Any:
    """A triton.Config from a mapping; a triton.Config is returned unchanged."""
    import triton

    if isinstance(values, triton.Config):
        return values
    options = (*OPTIONS, "pre_hook")
    own = {name: value for name, value in values.items() if name not in options}
    return triton.Config(own, **{name: value for name, value in values.items() if name in options})


@cache
def of_backends() -> frozenset[str]:
    """The options of a launch that only some of Triton's backends know, such as `waves_per_eu`."""
    from triton.backends import backends

    modules = [vars(sys.modules[each.compiler.__module__]) for each in backends.values()]
    options = [value for each in modules for name, value in each.items() if name.endswith("Options")]
    return frozenset(field.name for each in options if is_dataclass(each) for field in fields(each))


def values(config: Any) -> dict[str, Any]:
    """The settings of a triton.Config; one with a hook differs from one without."""
    hook = {} if config.pre_hook is None else {"pre_hook": config.pre_hook}
    return {**config.all_kwargs(), **hook}


def pruned(
    configs: Sequence[Any], by: Mapping[str, Any], positional: Mapping[str, Any], named: Mapping[str, Any]
) -> list[Any]:
    """Prune as Triton does: by `early_config_prune`, then keep the `top_k` by `perf_model`, in their original order.

    positional: the positional arguments of the call, by name. named: the others, with `grid` and `warmup`; both
    functions get the same as from Triton. Raises ValueError if no configuration is left or a function returns something
    else, TypeError for a `top_k` that is neither a share nor a count.
    """
    import triton

    kept = list(configs)
    if prune := by.get("early_config_prune"):
        found = prune(kept, dict(positional), **named)
        kept = list(found) if isinstance(found, Iterable) else [None]
        if not all(isinstance(each, triton.Config) for each in kept):
            raise ValueError(f"early_config_prune must return a list of its configurations, but returned {found!r}.")
        if not kept:
            raise ValueError("early_config_prune left no configuration, and must leave one.")
    if model := by.get("perf_model"):
        top = by.get("top_k", 1.0)
        count = int(len(configs) * top) if isinstance(top, float) and top <= 1 else top
        if not isinstance(count, int):
            raise TypeError(f"top_k must be a share of at most 1.0 or a whole number, but got {top!r}.")
        if len(kept) > count:
            expected = [_estimate(model(**positional, **named, **each.all_kwargs()), each) for each in kept]
            best = sorted(range(len(kept)), key=lambda number: expected[number])[: max(count, 1)]
            kept = [kept[number] for number in sorted(best)]
    return kept


def _estimate(found: Any, config: Any) -> float:
    """What `perf_model` returned. Raises ValueError if it is no number."""
    try:
        number = float(found)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise ValueError(f"perf_model must return a number, but returned {found!r} for {config}.")
    return number


def interpreted(kernel: Any) -> bool:
    """Whether Triton's interpreter runs the kernel; its times say nothing about the compiled kernel."""
    while kernel is not None and not inspect.isfunction(kernel):
        if type(kernel).__name__ == "InterpretedFunction":
            return True
        kernel = getattr(kernel, "fn", None)
    return False
