"""The configuration space of a kernel: every combination of parameter values that its constraints allow.

A configuration is identified by its number. A model sees its features, each from 0 to 1: the logarithm of each size,
because tiles and threads matter by factors; how often 2 divides the size, because hardware is built in powers of two;
the logarithm of the product of every two sizes, such as the threads of a block; the place of any other value in its
list. N configurations, P parameters, F features.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

Value = bool | int | float | str
Configuration = Mapping[str, Value]
Constraint = Callable[[Configuration], bool]


PRODUCT_WEIGHT = 0.5  # a product is less likely to matter than a size, so its distances count half


class TuningSpace:
    """parameters: the values of each. places: [N, P], for each configuration the place of each value in its list.

    Raises ValueError without configurations, and if two are equal.
    """

    def __init__(self, parameters: Mapping[str, Sequence[Value]], places: np.ndarray) -> None:
        if not len(places):
            raise ValueError("no configuration is left: the constraints reject all of them.")
        self.parameters = {name: tuple(values) for name, values in parameters.items()}
        self.places = np.asarray(places, dtype=np.int64)
        # The place of each value as one number, because a table of tuples takes a second for 100,000 configurations.
        sizes = [len(values) for values in self.parameters.values()]
        if math.prod(sizes) >= 2**62:
            raise ValueError("the space is too large: the values give 2^62 combinations or more.")
        self._factors = np.array([math.prod(sizes[column + 1 :]) for column in range(len(sizes))], dtype=np.int64)
        codes = self.places @ self._factors
        self._order = np.argsort(codes, kind="stable")
        self._codes = codes[self._order]
        if (self._codes[1:] == self._codes[:-1]).any():
            raise ValueError("the space holds a configuration twice.")

    @classmethod
    def product(cls, parameters: Mapping[str, Sequence[Value]], constraints: Iterable[Constraint] = ()) -> TuningSpace:
        """Every combination that all `constraints` allow. Raises ValueError if none is left."""
        constraints = tuple(constraints)
        for name, values in parameters.items():
            if not values or len(set(values)) != len(values):
                raise ValueError(f"parameter {name!r} needs values, each once, but got {list(values)}.")
        sizes = [len(values) for values in parameters.values()]
        if not constraints:
            kept = np.arange(math.prod(sizes))
        else:
            names, combinations = list(parameters), itertools.product(*parameters.values())
            allowed = (
                number
                for number, combination in enumerate(combinations)
                if all(allows(dict(zip(names, combination))) for allows in constraints)
            )
            kept = np.fromiter(allowed, dtype=np.int64)
        places = np.stack(np.unravel_index(kept, sizes), axis=1) if sizes else np.zeros((len(kept), 0), dtype=np.int64)
        return cls(parameters, places)

    def __len__(self) -> int:
        return len(self.places)

    def configuration(self, number: int) -> dict[str, Value]:
        """The values of configuration `number`."""
        return _configuration(self.parameters, self.places[number].tolist())

    def number(self, configuration: Configuration) -> int:
        """The number of `configuration`. Raises ValueError that names the invalid parameter or value."""
        if missing := [name for name in self.parameters if name not in configuration]:
            raise ValueError(f"the configuration lacks {', '.join(missing)}.")
        places = []
        for name in configuration:
            if name not in self.parameters:
                raise ValueError(f"there is no parameter {name!r}.{_nearest(name, self.parameters)}")
        for name, values in self.parameters.items():
            if configuration[name] not in values:
                raise ValueError(f"{name} must be one of {list(values)}, but got {configuration[name]!r}.")
            places.append(values.index(configuration[name]))
        number = self._at(places)
        if number is None:
            raise ValueError(f"the constraints of the space reject {dict(configuration)}.")
        return number

    def _at(self, places: Sequence[int]) -> int | None:
        """The number of the configuration with these places; None if there is none."""
        code = int(np.dot(np.array(places, dtype=np.int64), self._factors))
        found = int(np.searchsorted(self._codes, code))
        return int(self._order[found]) if found < len(self._codes) and self._codes[found] == code else None

    @cached_property
    def varied(self) -> list[int]:
        """The columns of the parameters that have more than one value among the configurations."""
        return [column for column in range(self.places.shape[1]) if np.ptp(self.places[:, column])]

    @property
    def logarithms(self) -> dict[int, np.ndarray]:
        """For each column that holds sizes the logarithms to base 2 of its values; [N]."""
        sizes = {column: values for column in self.varied if (values := self._sizes(column)) is not None}
        return {column: np.log2(values)[self.places[:, column]] for column, values in sizes.items()}

    @cached_property
    def features(self) -> np.ndarray:
        """[N, F] of float64."""
        sizes = {column: values for column in self.varied if (values := self._sizes(column)) is not None}
        columns = [self.places[:, column].astype(np.float64) for column in self.varied if column not in sizes]
        logarithms = list(self.logarithms.values())
        divided = [_twos(values)[self.places[:, column]] for column, values in sizes.items() if not _powers(values)]
        products = [one + other for one, other in itertools.combinations(logarithms, 2)]
        weighted = [(1.0, columns + logarithms + divided), (PRODUCT_WEIGHT, products)]
        return np.stack([weight * _unit(f) for weight, kind in weighted for f in kind] or [np.zeros(len(self))], axis=1)

    @cached_property
    def uneven(self) -> np.ndarray:
        """[N], from 0 to 1: the share of the sizes that are no powers of two, of those that may be one or not."""
        columns = []
        for column in self.varied:
            values = self._sizes(column)
            odd = np.zeros(0) if values is None else ~np.isclose(_twos(values), np.log2(values))
            if odd.any() and not odd.all():
                columns.append(odd[self.places[:, column]])
        return _unit(np.mean(columns, axis=0)) if columns else np.zeros(len(self))

    def _sizes(self, column: int) -> np.ndarray | None:
        """The values of a parameter if it is a size: more than two numbers, all above zero."""
        values = list(self.parameters.values())[column]
        if len(values) > 2 and all(type(value) in (int, float) and value > 0 for value in values):  # type: ignore[operator]
            return np.array(values, dtype=np.float64)
        return None

    def neighbours(self, number: int) -> list[int]:
        """The numbers of the configurations that differ from `number` in one parameter, in order."""
        place = self.places[number].tolist()
        found = []
        for column in self.varied:
            for other in range(len(list(self.parameters.values())[column])):
                if other != place[column]:
                    near = self._at((*place[:column], other, *place[column + 1 :]))
                    if near is not None:
                        found.append(near)
        return found


def _unit(values: np.ndarray) -> np.ndarray:
    """`values` scaled to the range from 0 to 1."""
    width = np.ptp(values)
    return (values - values.min()) / width if width else np.zeros(len(values))


def _twos(values: np.ndarray) -> np.ndarray:
    """How often 2 divides each of `values`; 0 for a value that is not whole."""
    return np.array([math.log2(int(value) & -int(value)) if value == int(value) else 0.0 for value in values])


def _powers(values: np.ndarray) -> bool:
    """Whether all `values` are powers of two. `_twos` then equals their logarithm and adds nothing to it."""
    return bool(np.allclose(_twos(values), np.log2(values)))


def _configuration(parameters: Mapping[str, Sequence[Value]], places: Sequence[int]) -> dict[str, Value]:
    return {name: values[place] for (name, values), place in zip(parameters.items(), places, strict=True)}


def _nearest(name: str, known: Iterable[Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(known)}."
