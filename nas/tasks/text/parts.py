"""Divides the documents of a text into the parts for training, validation and test.

The hash of the content of a document decides. So the division does not depend on the names or the order of the files,
and it is the same on every machine. Equal documents are in one part, and a held-out part has only the first of them,
because copies are not independent. The lowest hashes are the test part, the highest the validation part. So a document
stays in its part if others are added. The only exception: if a held-out part needs more than its share to have `LEAST`
documents, one of its documents may move to the training part.

One long document must not dominate the score of a part. A held-out document that is longer than a tenth of its part is
cut there, and the rest is left out. Training on the rest would reveal the document, and cutting it into more documents
would count it as several independent ones. D documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nas.tasks.contract import SPLITS
from nas.tasks.text import documents
from nas.tasks.text.documents import Document, File

By = Literal["documents", "position"]
LEAST = 40  # documents in a held-out part, if it is at most every fifth
FEW = 10  # different documents; a text of fewer repeats itself
LARGEST = 0.1  # of a held-out part may be one document
TRAIN, VALIDATION, TEST = range(3)  # places in SPLITS


@dataclass(frozen=True)
class Rules:
    """How to divide a text: by documents or by position, with which shares, and what a document is."""

    by: By = "position"
    shares: tuple[float, ...] = (0.9, 0.05, 0.05)
    documents: Any = "auto"


@dataclass(frozen=True)
class Arranged:
    """A text in the order of its parts. starts: [D], where documents begin. bounds: the end of the training data, and
    of the validation data; None if positions divide the text. left_out: bytes of held-out documents that are too long,
    and of copies of held-out documents."""

    data: bytes
    names: tuple[str, ...]
    starts: np.ndarray
    bounds: tuple[int, int] | None
    document: str
    left_out: int = 0


def arrange(files: Sequence[File], rules: Rules) -> Arranged:
    """Divide `files` into parts by `rules`. Raises TaskProblem if no document begins where `rules` say."""
    chosen = documents.chosen(files, rules.documents)
    found = documents.find(files, chosen)
    data = b"".join(each.data for each in files)
    given = any(each.part for each in files)
    if rules.by == "position" and not given:
        return _arranged(data, [found], chosen)
    if given:
        parts = _given(files, found, data, rules)
        return _arranged(data, [_of(found, parts == place) for place in range(len(SPLITS))], chosen)
    numbers = _numbers(found, data)
    parts = places(numbers, rules.shares)
    held = [_shortened(_of(found, (parts == place) & first(numbers)), data) for place in (VALIDATION, TEST)]
    return _arranged(data, [_of(found, parts == TRAIN), *held], chosen)


def _of(found: Sequence[Document], chosen: np.ndarray) -> list[Document]:
    """The documents that are chosen, from bool [D]."""
    return [each for each, taken in zip(found, chosen) if taken]


def first(numbers: np.ndarray) -> np.ndarray:
    """Whether each number is the first of its value, bool [D]."""
    return np.isin(np.arange(len(numbers)), np.unique(numbers, return_index=True)[1])


def _arranged(data: bytes, parts: list[list[Document]], chosen: Any) -> Arranged:
    every = [each for part in parts for each in part]
    pieces = [data[each.start : each.end] for each in every]
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    joined, bounds = b"".join(pieces), None
    if len(parts) > 1:
        ends = np.cumsum([len(part) for part in parts])
        bounds = int(starts[ends[TRAIN]]), int(starts[ends[VALIDATION]])
    names = tuple(each.name for each in every)
    return Arranged(joined, names, starts[:-1], bounds, documents.described(chosen), len(data) - len(joined))


def _numbers(found: Sequence[Document], data: bytes) -> np.ndarray:
    """The number of each document, [D]; see `hashes`."""
    return hashes([data[each.start : each.end] for each in found])


def places(numbers: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """The part of each document, [D], as an index of SPLITS, from the numbers [D]. Equal numbers are in one part and
    count as one document.

    If the share of the training part is 0, all documents are divided between the other two parts.
    """
    different, which = np.unique(numbers, return_inverse=True)
    parts = np.full(len(different), TRAIN)
    if not shares[TRAIN]:
        parts[:] = VALIDATION
        parts[: (len(different) + 1) // 2] = TEST
        return parts[which]
    least = max(1, min(LEAST, len(different) // 5))
    for part, rank in ((TEST, different), (VALIDATION, 1 - different[::-1])):
        count = max(int((rank < shares[part]).sum()), least)
        parts[slice(count) if part == TEST else slice(max(0, len(parts) - count), None)] = part
    return parts[which]


def hashes(pieces: Sequence[bytes]) -> np.ndarray:
    """A number from 0 to 1 for each document, [D], from its content. Equal documents have equal numbers, unless fewer
    than `FEW` are different: then each occurrence has its own number, so that every part gets some."""
    few = len(set(pieces)) < FEW
    seen: dict[bytes, int] = {}
    numbers = []
    for piece in pieces:
        occurrence = seen[piece] = seen.get(piece, -1) + 1
        mark = b"\0%d" % occurrence if few and occurrence else b""
        numbers.append(int.from_bytes(hashlib.sha256(piece + mark).digest()[:6], "big") / 2**48)
    return np.array(numbers)


def _given(files: Sequence[File], found: Sequence[Document], data: bytes, rules: Rules) -> np.ndarray:
    """The part of each document, [D], if the user gave files for parts. Of files given as held-out data, half of the
    documents are for validation: those with the highest hashes, or, by position, the first ones."""
    names: dict[str, int] = {name: place for place, name in enumerate(SPLITS)}
    parts = np.array([names.get(files[each.file].part or "", -1) for each in found])
    both = [each for each, part in zip(found, parts) if part < 0]
    if both and rules.by == "position":
        sizes = np.cumsum([each.size for each in both])
        parts[parts < 0] = np.where(sizes <= sizes[-1] / 2, VALIDATION, TEST)
    elif both:
        parts[parts < 0] = places(_numbers(both, data), (0.0, 0.5, 0.5))
    return parts


def _shortened(part: Sequence[Document], data: bytes) -> list[Document]:
    """The documents of a held-out part, each cut to at most `LARGEST` of the part after cutting."""
    cap = _cap(np.array([each.size for each in part]))
    return [each if each.size <= cap else _head(each, cap, data) for each in part]


def _cap(sizes: np.ndarray) -> int:
    """The largest c with c <= `LARGEST` * sum(min(size, c)); the largest size if there are very few documents."""
    if len(sizes) * LARGEST <= 1:
        return int(sizes.max(initial=0))
    low, high = 1, int(sizes.max())
    while low < high:
        middle = (low + high + 1) // 2
        if middle <= LARGEST * np.minimum(sizes, middle).sum():
            low = middle
        else:
            high = middle - 1
    return low


def _head(document: Document, cap: int, data: bytes) -> Document:
    """The first `cap` bytes of a document, up to the end of a line or at least of a character."""
    end = document.start + cap
    line = data.rfind(b"\n", document.start + cap // 2, end) + 1
    end = line or documents.between(data, end)
    return Document(document.name, document.file, document.start, min(end, document.end))
