"""Divides a text into documents: files, records at a separator, or pieces of a file.

Documents are divided among the parts, and scores are recorded for them, so they should be independent of each other.
Files and records usually are. Neighbouring pieces of one file are not: an interval over them is too narrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nas.tasks.own import TaskProblem

PIECE = 2_048  # bytes of a piece, at least; less in a text that would have fewer than `PIECES`
PIECES, SMALLEST = 64, 64  # pieces of a short text, and the fewest bytes of a piece
FILES = 200  # with fewer files, `auto` cuts them into pieces: a fifth of these are held out twice
RULES = ("auto", "files")
BLANK, LINE = re.compile(rb"\n[ \t\r]*\n"), re.compile(rb"\n")


@dataclass(frozen=True)
class File:
    """A file of a corpus: its name, its bytes, and the part of the data that the user gave it for (None: any)."""

    name: str
    data: bytes
    part: str | None = None


@dataclass(frozen=True)
class Document:
    """The bytes from `start` to before `end` of all files joined; they are from file number `file`."""

    name: str
    file: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def rule(value: Any) -> Any:
    """`value` if it is a valid rule for where documents begin. Raises ValueError for anything else."""
    if value in RULES:
        return value
    if not isinstance(value, Mapping) or set(value) != {"separator"} or not isinstance(value["separator"], str):
        raise ValueError(f"must be {', '.join(RULES)} or {{separator: a regular expression}}")
    if not value["separator"]:
        raise ValueError("must have a separator that is not empty")
    try:
        re.compile(value["separator"].encode(), re.MULTILINE)
    except re.error as error:
        raise ValueError(f"must have a separator that is a regular expression ({error})") from None
    return dict(value)


def chosen(files: Sequence[File], documents: Any) -> Any:
    """What `auto` means for these files: `files` if there are enough of them to hold out, else `pieces`."""
    if documents != "auto":
        return documents
    held = [sum(each.part == part for each in files) for part in ("validation", "test")]
    both = sum(each.part == "held_out" for each in files)
    if any(each.part for each in files):
        enough = both >= FILES * 2 // 5 if both else min(held) >= FILES // 5
    else:
        enough = len(files) >= FILES
    return "files" if enough else "pieces"


def described(chosen: Any) -> str:
    """What a document is, as text."""
    if isinstance(chosen, Mapping):
        return f"a record that starts at {chosen['separator']!r}"
    return (
        "a file" if chosen == "files" else "a piece of a file, cut at blank lines; pieces of a file are not independent"
    )


def find(files: Sequence[File], chosen: Any) -> list[Document]:
    """The documents of `files`, in order; together they contain all bytes.

    Raises TaskProblem if a separator occurs nowhere within the text.
    """
    total = sum(len(each.data) for each in files)
    piece = max(SMALLEST, min(PIECE, total // PIECES))
    found, before, names = [], 0, set[str]()
    for number, each in enumerate(files):
        cuts = _cuts(each.data, chosen, piece)
        for start, end in pairwise([*cuts, len(each.data)]):
            if end > start:
                name = _name(each, start, len(cuts) > 1, chosen)
                name = name if name not in names else f"{name} @{before + start}"
                names.add(name)
                found.append(Document(name, number, before + start, before + end))
        before += len(each.data)
    if isinstance(chosen, Mapping) and len(found) <= len(files):
        raise TaskProblem(
            f"documents: the separator {chosen['separator']!r} finds no document within the text. It is a regular "
            "expression for the line at which a document begins."
        )
    return found


def _cuts(data: bytes, chosen: Any, piece: int) -> list[int]:
    """Where the documents of a file begin."""
    if chosen == "files":
        return [0]
    if chosen == "pieces":
        return list(_pieces(data, piece))
    pattern = re.compile(chosen["separator"].encode(), re.MULTILINE)
    starts = sorted({match.start() for match in pattern.finditer(data)} - {0})
    if starts and not data[: starts[0]].strip():
        starts = starts[1:]  # white space before the first record belongs to it
    return [0, *starts]


def _pieces(data: bytes, piece: int) -> Iterator[int]:
    start = 0
    yield start
    while len(data) - start > 1.5 * piece:
        start = _cut(data, start, piece)
        if start >= len(data):
            return
        yield start


def _cut(data: bytes, start: int, piece: int) -> int:
    """The end of the piece that begins at `start`: after a blank line, else after a line, else between characters."""
    for pattern in (BLANK, LINE):
        found = pattern.search(data, start + piece, start + 4 * piece)
        if found:
            return found.end()
    return between(data, start + piece)


def between(data: bytes, place: int) -> int:
    """The first position from `place` on that is not inside a UTF-8 character."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def _name(file: File, start: int, several: bool, chosen: Any) -> str:
    if isinstance(chosen, Mapping):
        lines: Iterable[bytes] = file.data[start : start + 400].strip().splitlines()
        return next(iter(lines), b"").decode(errors="replace").strip()[:80] or f"{file.name}@{start}"
    return f"{file.name}@{start}" if several else file.name


def in_characters(data: bytes, places: np.ndarray) -> np.ndarray:
    """`places`, byte offsets in UTF-8 `data` in ascending order, counted in characters."""
    first = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    ends = [0, *places.tolist()]
    return np.cumsum([np.count_nonzero(first[start:end]) for start, end in pairwise(ends)], dtype=np.int64)
