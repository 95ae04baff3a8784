"""One measurement as it is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernels.dispatch import limits


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
    device: str = ""


class Described(Protocol):
    """A device, or what is known of one: its key and its fingerprint."""

    @property
    def key(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...
