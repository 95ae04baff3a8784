"""Types for options: numbers and words with a valid range, written as annotations of a signature.

    def __init__(self, length: Positive = 32, share: Annotated[float, number(above=0, high=1)] = 0.15): ...

`nas.registry.checked` applies them through pydantic. This module imports nothing heavy, so a machine without pydantic
can still import what uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

MOST = 2**31 - 1  # of a count: what both databases store
MOST_THREADS = 1024  # of torch: with 100,000 the process ends with a segmentation fault


@dataclass(frozen=True)
class Check:
    """A marker inside `Annotated` that pydantic calls: `function` returns the value, or raises ValueError."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.function)


def whole(low: int = 0) -> Check:
    """Accept whole numbers from `low` to `MOST`; neither True nor 3.0 is one."""

    def function(value: Any) -> int:
        if type(value) is not int or value < low:
            raise ValueError(f"must be a whole number of at least {low}")
        if value > MOST:
            raise ValueError(f"must be a whole number of at most {MOST}")
        return value

    return Check(function)


def whole_or(word: str, low: int = 0) -> Check:
    """Accept the word, and whole numbers of at least `low`."""

    def function(value: Any) -> int | str:
        if value == word:
            return word
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
        if not whole or value < low:
            raise ValueError(f"must be {word} or a whole number of at least {low}")
        return int(value)

    return Check(function)


def number(
    *, above: float | None = None, low: float = 0.0, below: float | None = None, high: float | None = None
) -> Check:
    """Accept finite numbers in a range. `above` and `below` exclude their ends, `low` and `high` include them."""
    bottom = f"above {above:g}" if above is not None else f"of at least {low:g}"
    top = f" and below {below:g}" if below is not None else f" and at most {high:g}" if high is not None else ""

    def function(value: Any) -> float:
        right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        right = right and (value > above if above is not None else value >= low)
        if not right or (below is not None and value >= below) or (high is not None and value > high):
            raise ValueError(f"must be a number {bottom}{top}")
        return value

    return Check(function)


def names() -> Check:
    """Accept a name, or a list of different names."""

    def function(value: Any) -> tuple[str, ...]:
        found = (value,) if isinstance(value, str) else value
        if not isinstance(found, list | tuple) or not all(isinstance(name, str) and name for name in found):
            raise ValueError("must be a name or a list of names")
        if len(set(found)) != len(found):
            raise ValueError("must name each of them once")
        return tuple(found)

    return Check(function)


Positive = Annotated[int, whole(1)]
Fraction = Annotated[float, number(high=1)]


def bounds(**limits: Any) -> Any:
    """Limits of a number for `Annotated`, as pydantic names them: ge, gt, le, lt. None without pydantic."""
    try:
        from pydantic import Field
    except ImportError:  # a machine without pydantic, for measurements only
        return None
    return Field(**limits)


def checked_threads(threads: Any) -> int:
    """The number, if torch can compute on as many threads. Raises ValueError if it cannot."""
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads must be at least 1, but got {threads!r}.")
    if threads > MOST_THREADS:
        raise ValueError(f"threads must be at most {MOST_THREADS:,}, but got {threads}.")
    return threads
