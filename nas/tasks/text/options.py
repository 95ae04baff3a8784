"""The common options of text tasks: which text to use, and how to divide it into parts."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from nas.files import is_file
from nas.options import PlainValidator
from nas.tasks.contract import SPLITS
from nas.tasks.text import corpus, documents

PARTS = (SPLITS, ("train", "held_out"))  # what a mapping `data` may name
FRACTIONS = (0.9, 0.05, 0.05)


def patterns(data: Any) -> list[str] | dict[str, list[str]] | None:
    """`data` as a list of patterns, or one for each part. Raises ValueError for anything else."""
    if isinstance(data, Mapping):
        if set(data) not in [set(names) for names in PARTS]:
            raise ValueError("must name train, validation and test, or train and held_out")
        return {part: _listed(data[part]) for names in PARTS if set(names) == set(data) for part in names}
    return None if data is None else _listed(data)


def _listed(data: Any) -> list[str]:
    listed = [data] if isinstance(data, str) else data
    if not isinstance(listed, Sequence) or not listed or not all(isinstance(pattern, str) for pattern in listed):
        raise ValueError("must be a path, a pattern such as texts/*.txt, or a list of them")
    return list(listed)


def absolute(data: Any, folder: Path) -> Any:
    """`data` with its patterns relative to `folder`. Raises ValueError as `patterns` does."""
    found = patterns(data)
    if isinstance(found, dict):
        return {part: _absolute(listed, folder) for part, listed in found.items()}
    return None if found is None else _absolute(found, folder)


def _absolute(listed: list[str], folder: Path) -> list[str]:
    return [each if each in corpus.NAMES else _below(folder.absolute(), Path(each).expanduser()) for each in listed]


def _below(folder: Path, pattern: Path) -> str:
    """`pattern` below `folder`, whose characters are taken literally."""
    file = folder / pattern
    return str(file) if pattern.is_absolute() or is_file(file) else str(Path(glob.escape(str(folder))) / pattern)


def fractions(value: Any) -> tuple[float, ...]:
    """`value` as one fraction for each split. Raises ValueError for anything else."""
    numbers = [part for part in value if isinstance(part, int | float)] if isinstance(value, list | tuple) else []
    if len(numbers) != len(SPLITS) or min(numbers) <= 0 or abs(sum(numbers) - 1) > 1e-9:
        raise ValueError(f"must be {len(SPLITS)} fractions above 0 that add up to 1")
    return tuple(numbers)


Data = Annotated[str | Sequence[str] | Mapping[str, Any] | None, PlainValidator(patterns)]
Level = Literal["bytes", "characters"]
SplitBy = Literal["documents", "position"]
Fractions = Annotated[Sequence[float], PlainValidator(fractions)]
Documents = Annotated[str | Mapping[str, str], PlainValidator(documents.rule)]
