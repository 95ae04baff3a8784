"""The attribute `settled` of a strategy, scheduler or task, which may be the user's own.

A study keeps these options, and gives them to the constructor again. So they must be options of the constructor, and
JSON must give back the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nas.errors import AnswerProblem, UsageError
from nas.own.answers import Answers, Refused

MOST = 2**63  # above the whole numbers that are kept
OPTIONS = "a dict of options of the constructor, from names to values"
VALUE = "None, a bool, an int of 64 bits, a finite float, text, or a list or dict of these (with text as keys)"


def checked(kind: str, name: str, made: object, make: Callable[[Mapping[str, Any]], object]) -> dict[str, Any]:
    """The options that `made` settles, in plain Python values; none if it has no such attribute.

    kind: what `made` is, such as "strategy". name: what it is registered as. make: makes another one with options.
    Raises AnswerProblem for options that the constructor does not accept, for values that JSON does not give back, and
    for an error of `made`. Scalars of NumPy become numbers and texts of Python.
    """
    answers = Answers(kind, name, made, AnswerProblem)
    found: dict[str, Any] = answers.attempt(lambda: "settled", _read, made)
    try:
        if found:
            answers.attempt(lambda: "its constructor", make, found)
    except AnswerProblem:
        raise
    except UsageError as error:
        answers.refuse("settled", found, f"options that the constructor accepts ({str(error).removesuffix('.')})")
    return found


def _read(made: object) -> dict[str, Any]:
    given = getattr(made, "settled", {})
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise Refused("settled", given, OPTIONS)
    return {str.__str__(key): _value(key, value) for key, value in given.items()}


def _value(key: str, value: object) -> Any:
    try:
        return _plain(value)
    except ValueError:
        raise Refused(f"settled[{key!r}]", value, VALUE) from None


def _plain(value: Any) -> Any:
    """`value` as JSON gives it back, with a list for a tuple. Raises ValueError if that is another value."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value.encode(), "utf-8")  # raises for half of a surrogate pair, which no file can hold
    if isinstance(value, int) and -MOST <= value < MOST:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {_plain(key): _plain(each) for key, each in value.items()}
    raise ValueError
