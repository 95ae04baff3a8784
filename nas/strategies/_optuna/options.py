"""Checks the options of Optuna's samplers: Optuna itself accepts any value and fails only when it samples."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from nas.errors import UsageError
from nas.options import MOST_TRIALS, Field, Number, Whole
from nas.registry import all_mistakes, converted
from searchspace.errors import nearest

SMALLEST, LARGEST = 1e-100, 1e100  # of a direction: the square of its length must be neither 0 nor infinite
MOST_STEPS = 1_000_000  # of all directions that NSGA-III makes of its `dividing_parameter`: a second and 100 MB
LEAST = {"n_startup_trials": 0, "inc_popsize": -1}  # of whole numbers that may be below 1
# TPE compares each candidate with all trials: with 20 holes and 1,000 trials, 10,000 candidates take 6 to 14 s and
# 300 MB for each proposal, and 100,000 take minutes and 2.5 GB.
MOST = {"n_ei_candidates": 10_000}
TYPES: dict[str, Any] = {
    "bool": Annotated[bool, Field(strict=True)],
    "float": Number,
    "str": Annotated[str, Field(min_length=1)],
}


def checked(sampler: Callable[..., Any], options: Mapping[str, Any], objectives: int) -> dict[str, Any]:
    """`options` of a sampler as values of the declared types. objectives: how many the search has.

    Values that YAML does not have, such as functions, are not checked. Raises UsageError that names each wrong option.
    """
    what = f"Optuna's {sampler.__name__}"
    parameters = {name: each for name, each in inspect.signature(sampler).parameters.items() if name != "seed"}
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in options.items():
        if name not in parameters:
            raise UsageError(
                f"{what} has no option {name!r}.{nearest(name, parameters)} Its options: {', '.join(parameters)}."
            )
        try:
            values[name] = _checked(name, parameters[name].annotation, value, objectives)
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        raise UsageError(all_mistakes(what, mistakes))
    return values


def _checked(name: str, annotation: Any, value: Any, objectives: int) -> Any:
    """`value` as the type that `annotation` writes. Raises ValueError with the end of a sentence."""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    kind = written.removesuffix(" | None")
    if value is None and kind != written:
        return None
    if kind == "int":
        limits = Field(ge=LEAST.get(name, 1), le=MOST.get(name, MOST_TRIALS))
        number = converted(Annotated[Whole, limits], value, name)
        return _divided(number, objectives) if name == "dividing_parameter" else number
    if kind in TYPES:
        return converted(TYPES[kind], value, name)
    if kind == "np.ndarray":
        return _directions(name, value, objectives)
    if isinstance(value, bool | int | float | str | list) or (isinstance(value, dict) and kind != "dict[str, Any]"):
        raise ValueError(f", option {name!r}: must be left out, because YAML has no value of the type {kind}.")
    return value


def _divided(parts: int, objectives: int) -> int:
    """`parts` if they give a number of directions that can be listed. Raises ValueError as `_checked`."""
    directions = math.comb(objectives + parts - 1, parts)
    if parts * directions > MOST_STEPS:
        raise ValueError(
            f", option 'dividing_parameter': must be smaller; {parts} parts of {objectives} objectives give "
            f"{directions:,} directions."
        )
    return parts


def _directions(name: str, value: Any, objectives: int) -> list[list[float]]:
    """`value` as at least one direction with a number for each objective. Raises ValueError as `_checked`."""
    rows: list[list[float]] = converted(
        Annotated[list[list[Annotated[Number, Field(le=LARGEST)]]], Field(min_length=1)], value, name
    )
    for place, row in enumerate(rows):
        wrong = f", option '{name}.{place}': must have"
        if len(row) != objectives:
            raise ValueError(f"{wrong} {objectives} numbers, one for each objective, but got {row!r}.")
        if max(row) < SMALLEST:
            raise ValueError(f"{wrong} a number of at least {SMALLEST:g}, because it is a direction, but got {row!r}.")
    return rows
