"""Reads JSON from files that another program may have damaged: size and depth are limited before anything is parsed.

Kinds of values are checked by name, so that a table has one schema with and without pydantic installed.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MOST_BYTES = 64 * 2**20  # of a file, and of what a gzipped file unpacks to
MOST_DEPTH = 32  # Python's parser recurses
MOST_LINE = 4 * 2**20  # bytes of one line of a file of JSON lines

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def loads(text: str) -> Any:
    """The data of a JSON text. Raises ValueError if it is no JSON, too large, nested too deeply, or has NaN."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has {len(text):,} characters; at most {MOST_BYTES:,} are read")
    depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested deeper than {MOST_DEPTH} levels")
    return json.loads(text, parse_constant=_refuse)


def load(path: Path) -> Any:
    """The data of a JSON file. Raises OSError if it cannot be read, ValueError as `loads` does."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    return loads(content.decode("utf-8"))


def load_packed(path: Path) -> Any:
    """The data of a gzipped JSON file. Raises OSError or EOFError if it cannot be read, ValueError as `loads` does."""
    with path.open("rb") as file:
        try:
            content = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)
        except zlib.error as error:
            raise ValueError(f"its gzip data are damaged ({error})") from None
    return loads(content.decode("utf-8"))


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file, unpacked if its name ends in .gz.

    Raises OSError or EOFError if it cannot be read, ValueError if it is too large or damaged.
    """
    with path.open("rb") as file:
        unpacked: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        try:
            yield from _lines(unpacked)
        except zlib.error as error:
            raise ValueError(f"its gzip data are damaged ({error})") from None


def _lines(file: BinaryIO) -> Iterator[str]:
    total = 0
    while line := file.readline(MOST_LINE + 1):
        total += len(line)
        if len(line) > MOST_LINE:
            raise ValueError(f"it has a line of more than {MOST_LINE:,} bytes")
        if total > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes unpacked")
        yield line.decode("utf-8")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def check(row: Any, schema: Mapping[str, Any], where: str) -> None:
    """Raises ValueError, naming `where`, the key and the value, if `row` is no mapping with the keys of `schema`.

    schema: a function for each key that says what is expected, or None if a value is valid.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} must be a mapping, but is {short(row)}")
    if missing := [name for name in schema if name not in row]:
        raise ValueError(f"{where} has no {missing[0]!r}")
    for name, accepts in schema.items():
        if expected := accepts(row[name]):
            raise ValueError(f"{name!r} of {where} must be {expected}, but is {short(row[name])}")


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def text_or_null(value: Any) -> str | None:
    return None if value is None else text(value) and "a text or null"


def amount(value: Any) -> str | None:
    """A finite number that is not negative."""
    fits = type(value) in (int, float) and 0 <= value <= 1e300 and math.isfinite(value)
    return None if fits else "a finite number of at least 0"


def amount_or_null(value: Any) -> str | None:
    return None if value is None else amount(value) and "a finite number of at least 0, or null"


def amounts(value: Any) -> str | None:
    return None if isinstance(value, list) and not any(map(amount, value)) else "a list of numbers of at least 0"


def sizes(value: Any) -> str | None:
    """Whole numbers by name."""
    fits = isinstance(value, dict) and all(type(each) is int and 0 <= each < 2**63 for each in value.values())
    return None if fits else "whole numbers by name"


def all_sizes(value: Any) -> str | None:
    fits = isinstance(value, list) and not any(map(sizes, value)) and len({tuple(each) for each in value}) <= 1
    return None if fits else "a list of whole numbers by the same names"


def scalars(value: Any) -> str | None:
    """Plain values by name."""
    fits = isinstance(value, dict) and all(
        each is None or type(each) in (bool, int, float, str) for each in value.values()
    )
    return None if fits else "plain values by name"


def short(value: Any) -> str:
    """A value in a message."""
    written = repr(value[:80] if isinstance(value, str | list) else value)
    return written if len(written) <= 80 else f"{written[:77]}..."
