"""The configurations of a large space, which are not listed before they are needed.

A known call needs one of them, and to know that the space is the same. So the signature of a large space is a hash of
its definition: the values, the default, the code of the constraints, and the arguments that the constraints see. Each
configuration has a number in the `TuningSpace`; a choice is made from its number when it is measured.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from kernels.dispatch.registry import Choice
from tuner.space import TuningSpace, first_allowed
from tuner.triton import configurations as cases
from tuner.triton.jit_source import code_and_closure

LARGE = 4096  # combinations, before the constraints
PLAIN = (bool, int, float, str)

Constraint = Callable[[Mapping[str, Any]], bool]


def is_large(space: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a space is not listed; its values must be plain, so that a choice gives them back."""
    plain = all(isinstance(value, PLAIN) for values in space.values() for value in values)
    return plain and math.prod(map(len, space.values())) > LARGE


class Combinations(Mapping[Choice, Any]):
    """The triton.Config of each choice. default: the choice to begin with.

    Raises ValueError if the constraints reject all combinations, or the default.
    """

    def __init__(
        self,
        parameters: Mapping[str, Sequence[Any]],
        constraints: Sequence[Constraint],
        default: Mapping[str, Any],
        arguments: Mapping[str, Any],
    ) -> None:
        self.parameters, self.constraints, self.arguments = parameters, tuple(constraints), arguments
        values = {**first_allowed(parameters, self.allows), **default}
        if not self._holds(values):
            raise ValueError(f"the constraints of the space reject the default {values}.")
        self.given = dict(default)
        self.default = self.choice(values)

    def allows(self, values: Mapping[str, Any]) -> bool:
        """Whether all constraints allow a combination."""
        if not self.constraints:
            return True
        merged = cases.Named(self.arguments, **values)
        return all(each(merged) for each in self.constraints)

    @cached_property
    def space(self) -> TuningSpace:
        """All allowed combinations; this takes about a second for 100,000."""
        return TuningSpace.product(self.parameters, [self.allows] if self.constraints else [])

    @property
    def signature(self) -> str:
        """A hash of the definition."""
        seen = sorted((name, _described(value)) for name, value in self.arguments.items()) if self.constraints else []
        parts = [
            *((name, list(values)) for name, values in self.parameters.items()),
            sorted(self.given.items()),
            [code_and_closure(each) for each in self.constraints],
            seen,
        ]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    def number(self, choice: Choice) -> int:
        """The number of a choice. Raises ValueError if it is not in the space."""
        return self.space.number(self._values(choice))

    def _values(self, choice: Choice) -> dict[str, Any]:
        known = dict(choice.configuration)
        return {name: known.get(name) for name in self.parameters}

    def _holds(self, values: Mapping[str, Any]) -> bool:
        return all(values.get(name) in some for name, some in self.parameters.items()) and self.allows(values)

    def choice(self, values: Mapping[str, Any]) -> Choice:
        """The choice with these values."""
        return cases.choice_of(cases.values(cases.config(values)))

    def __getitem__(self, choice: Choice) -> Any:
        if choice not in self:
            raise KeyError(str(choice))
        return cases.config(self._values(choice))

    def __contains__(self, choice: object) -> bool:
        if not isinstance(choice, Choice):
            return False
        values = self._values(choice)
        return self._holds(values) and self.choice(values) == choice

    def __iter__(self) -> Iterator[Choice]:
        return (self.choice(self.space.configuration(number)) for number in range(len(self.space)))

    def __len__(self) -> int:
        return len(self.space)


class Numbered(Sequence[Choice]):
    """The choices by their number in the space."""

    def __init__(self, combinations: Combinations) -> None:
        self.combinations = combinations

    def __getitem__(self, number: Any) -> Any:
        return self.combinations.choice(self.combinations.space.configuration(number))

    def __len__(self) -> int:
        return len(self.combinations.space)

    def __contains__(self, choice: object) -> bool:
        return choice in self.combinations

    def numbers_of(self, known: Iterable[Choice]) -> list[tuple[int, Choice]]:
        """(number, choice) of the known choices that are in the space, in order."""
        some = [(self.combinations.number(each), each) for each in known if each in self.combinations]
        return sorted(some, key=lambda pair: pair[0])


def _described(value: Any) -> str:
    """An argument as constraints may see it."""
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {value.dtype} {tuple(value.stride())}"
    return repr(value) if isinstance(value, PLAIN) or value is None else str(type(value))
