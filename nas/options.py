"""Types for options: numbers and names with a valid range, written as annotations of a signature.

    def __init__(self, length: Positive = 32, share: Annotated[Fraction, Field(gt=0)] = 0.15): ...

`nas.registry.checked` applies them through pydantic. They are strict: `"8"`, `8.5` and `true` are no whole numbers, but
`8.0` is one. A further `Field` narrows a type. Give a count a limit (`le`) if a large number would take endless time or
memory. Modules that train or measure take `Field` and the validators from here, because they also run where pydantic is
not installed. The annotations then say nothing.
"""

from __future__ import annotations

from numbers import Integral
from typing import Annotated, Any, Literal

from nas.threads import MOST_THREADS

try:
    from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator
except ImportError:

    def _says_nothing(*_given: Any, **_named: Any) -> None:
        """In place of the names above."""

    AfterValidator = BeforeValidator = Field = PlainValidator = _says_nothing  # type: ignore[assignment, misc]

__all__ = ["AfterValidator", "BeforeValidator", "Field", "PlainValidator"]

MOST = 2**31 - 1  # of a count: what both databases store
MOST_TRIALS = 1_000_000  # that a strategy or a scheduler waits for, keeps or compares


def as_whole(value: Any) -> Any:
    """`value` as an int if it is a whole number, also of NumPy; else unchanged. `true` is no number."""
    if isinstance(value, Integral):
        return value if isinstance(value, bool) else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(as_whole), Field(strict=True)]  # it may be written 8.0 or 1e3
Positive = Annotated[Whole, Field(ge=1, le=MOST)]
Threads = Annotated[Whole, Field(ge=1, le=MOST_THREADS)]
Steps = Annotated[Whole, Field(ge=1, le=MOST)]
Trials = Annotated[Whole, Field(ge=1, le=MOST_TRIALS)]
Rungs = Annotated[tuple[Steps, ...], Field(min_length=1)]
Start = Literal["auto"] | Trials  # random trials before the first child
Number = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]


def _listed(value: Any) -> Any:
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple):
        raise ValueError("must be a name or a list of names")
    return found


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("must name each of them once")
    return names


Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listed), AfterValidator(_different)
]  # a name, or a list of different names
