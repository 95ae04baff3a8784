"""One measurement as it is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kernels.dispatch import limits
from tuner.measure import resources


def settings(value: Any) -> str | None:
    """JSON of plain values by name: what a configuration is read from."""
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        found = None
    return limits.scalars(found) and "JSON of plain values by name"


SCHEMA = dict.fromkeys(("operation", "problem", "dtype", "implementation", "source"), limits.text)
SCHEMA |= dict.fromkeys(("milliseconds", "low", "high"), limits.amount_or_null)
SCHEMA |= dict.fromkeys(("failure", "message", "turns"), limits.text_or_null) | {"samples": limits.amounts}
SCHEMA |= {"configuration": settings}
OPTIONAL = {"resources": resources.fault}  # is left out where it is unknown, as in rows of earlier versions
FORGOTTEN = "forgotten"  # the failure of a row that ends the validity of all rows before it
USERS = "triton"  # the implementation of a user's Triton kernel; it has only this one
EVERY = "{}"  # the problem of such a row, for all problems of the operation


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; the fields are those of `nas.store.Measurement`, where they are described."""

    operation: str
    problem: str
    dtype: str
    implementation: str
    configuration: str
    source: str
    milliseconds: float | None = None
    low: float | None = None
    high: float | None = None
    samples: Sequence[float] = ()
    failure: str | None = None
    message: str | None = None
    turns: str | None = None
    resources: Mapping[str, int] | None = None
    device: str = ""


def written(row: Row) -> dict[str, Any]:
    """A row as it is written to files."""
    return {name: value for name, value in asdict(row).items() if value is not None or name not in OPTIONAL}


def schema_of(row: Any) -> dict[str, Callable[[Any], str | None]]:
    """The checks of a row that was read from a file."""
    given = row if isinstance(row, Mapping) else {}
    return SCHEMA | {name: check for name, check in OPTIONAL.items() if name in given}


class Described(Protocol):
    """A device: its key and its fingerprint."""

    @property
    def key(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...
