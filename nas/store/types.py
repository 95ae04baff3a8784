"""Column types that work the same on SQLite and PostgreSQL: moments, documents, and the database's own clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sqlalchemy import Double, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator


class Moment(TypeDecorator[datetime]):
    """A time, stored as seconds since 1970-01-01 UTC, so that every database can add and compare it."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> float | None:
        return None if value is None else value.timestamp()

    def process_result_value(self, value: float | None, dialect: Any) -> datetime | None:
        return None if value is None else datetime.fromtimestamp(value, UTC)


class Document(TypeDecorator[Any]):
    """JSON as ASCII text. PostgreSQL refuses NUL and unpaired surrogates, so they are escaped."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return None if value is None else json.loads(value)


class DecodedLater(Mapping[str, Any]):
    """A JSON object that is decoded when it is read first."""

    def __init__(self, text: str) -> None:
        """text: as `Document` writes it."""
        self._text = text

    @cached_property
    def _values(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._text)
        return found

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __bool__(self) -> bool:
        return self._text != "{}"

    def __repr__(self) -> str:
        return self._text


class LaterDocument(Document):
    """A document that is read as `DecodedLater`. A search reads the choices of all trials and needs those of few."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Any) -> DecodedLater | None:
        return None if value is None else DecodedLater(value)


class now(FunctionElement[float]):
    """The database's clock in seconds since 1970-01-01 UTC. It advances during a transaction."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_on_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_on_postgresql(element: now, compiler: Any, **options: Any) -> str:
    return "(extract(epoch from clock_timestamp())::double precision)"


MOST_TEXT = 64 * 1024  # characters of a message; a traceback of a task that prints its data may have millions
MOST_NAME = 200  # characters of the name of a metric


def storable(text: str, most: int = MOST_TEXT) -> str:
    """Text that both databases accept: NUL and invalid UTF-8 are written as escapes.

    The middle of a text of more than `most` characters is left out, and a note says how much it was.
    """
    if len(text) > most:
        note = f" ... {len(text) - most:,} characters are left out ... "
        first = max((most - len(note)) // 2, 0)
        last = max(most - len(note) - first, 0)
        text = text[:first] + note + text[len(text) - last :]
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def canonical(value: Any) -> str:
    """JSON in a canonical form: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
