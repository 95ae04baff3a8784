"""What a scheduler ranks trials by: the first objective, a weighted sum of objectives, or Pareto fronts.

    rank: quality                                  # the first objective alone
    rank: {bits_per_byte: 1, log2 flops: 0.05}     # a doubling of the FLOPs counts as much as 0.05 bits per byte
    rank: pareto                                   # by Pareto front, then by crowding distance
    cost_limits: {flops: 20M}                           # a trial beyond the limit does not continue

All values are minimised: a maximised objective is negated before it is weighted. Of trials with the same value the
older one is better.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from nas.options import BeforeValidator, Field, Number
from nas.schedulers.order import Fronts, Line, Order, Values
from searchspace.errors import SpaceError, nearest
from searchspace.language.documents import number

QUALITY: Literal["quality"] = "quality"
PARETO: Literal["pareto"] = "pareto"
LOG = "log2 "  # before the name of an objective: its logarithm counts


def _rank(value: Any) -> Any:
    if value in (QUALITY, PARETO):
        return value
    if not isinstance(value, Mapping) or not value:
        near = nearest(value, (QUALITY, PARETO)) if isinstance(value, str) else ""
        raise ValueError(
            f"must be {QUALITY}, {PARETO}, or weights such as {{bits_per_byte: 1, log2 flops: 0.05}}{near}"
        )
    return _limits(value)


def _limits(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("must be names of objectives with numbers, such as {flops: 20M}")
    return {str(name): each for name, each in value.items()}


def _number(value: Any) -> float:
    try:
        return number(value)
    except SpaceError as error:
        raise ValueError(str(error)) from None


Size = Annotated[Number, BeforeValidator(_number)]  # such as 20M
Rank = Annotated[dict[str, Annotated[Size, Field(gt=0)]] | Literal["quality", "pareto"], BeforeValidator(_rank)]
CostLimits = Annotated[dict[str, Size], BeforeValidator(_limits)]


class Ranking:
    """Gives each trial the values that an `Order` compares.

    objectives: {name: direction}, in their order. None: they are not known, so a ranking that names objectives ranks
    nothing and can only forecast. Raises ValueError for a name that is no objective.
    """

    def __init__(
        self,
        rank: str | Mapping[str, float],
        limits: Mapping[str, float],
        objectives: Mapping[str, str] | None,
    ) -> None:
        self.rank, self.limits = rank, limits
        self._places = {name: place for place, name in enumerate(objectives or {})}
        self._signs = [-1.0 if direction == "maximize" else 1.0 for direction in (objectives or {}).values()]
        if objectives is not None:
            self._check_names()

    def values(self, values: Values) -> Values | None:
        """What to compare, all minimised and finite; None if the trial cannot continue. Raises ValueError if the
        ranking names objectives that it was not given."""
        if not all(map(math.isfinite, values)) or (self.limits and not self._is_within(values)):
            return None
        if isinstance(self.rank, Mapping):
            total = sum(weight * self._term(name, values) for name, weight in self.rank.items())
            return (total,) if math.isfinite(total) else None  # the sum of finite terms may overflow
        return values[:1] if self.rank == QUALITY else values

    def order(self, values: Values) -> Order:
        """An empty order for such values."""
        return Line() if len(values) == 1 else Fronts()

    def _is_within(self, values: Values) -> bool:
        return all(values[place] <= self._signs[place] * self.limits[name] for name, place in self._placed(self.limits))

    def _term(self, name: str, values: Values) -> float:
        (place,) = (place for _, place in self._placed([name.removeprefix(LOG)]))
        value = values[place]
        return math.log2(max(value, sys.float_info.min)) if name.startswith(LOG) else value

    def _placed(self, names: Any) -> list[tuple[str, int]]:
        if names and not self._places:
            raise ValueError(f"the scheduler must know the objectives to rank by {', '.join(names)}")
        return [(name, self._places[name]) for name in names]

    def _check_names(self) -> None:
        weights = self.rank if isinstance(self.rank, Mapping) else {}
        self._check("cost_limits", self.limits, lambda name: name)
        self._check("rank", weights, lambda name: name.removeprefix(LOG))
        for name in weights:
            if name.startswith(LOG) and self._signs[self._places[name.removeprefix(LOG)]] < 0:
                raise ValueError(
                    f"rank has {name!r}, but a maximised objective has no logarithm here: weight it as it is."
                )

    def _check(self, option: str, names: Mapping[str, float], objective: Callable[[str], str]) -> None:
        for name in names:
            if objective(name) not in self._places:
                known = ", ".join(self._places)
                raise ValueError(
                    f"{option} names {name!r}, but the search has no such objective."
                    f"{nearest(objective(name), self._places)} Its objectives: {known}."
                )
