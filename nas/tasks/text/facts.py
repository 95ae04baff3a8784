"""Facts about a text and its parts: sizes, documents, and the overlap of the held-out text with the training text.

H bytes of held-out text: the validation part, then the test part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nas.tasks.contract import SPLITS, Split
from nas.tasks.own import TaskProblem
from nas.tasks.prepared import prepared
from nas.tasks.text import overlap
from nas.tasks.text.reading import Text

Part = Callable[[Split], tuple[int, int]]
HELD_OUT: tuple[Split, ...] = ("validation", "test")


def of_text(text: Text, part: Part, cache: Path | None, *, removed: bool) -> dict[str, Any]:
    """The facts, as plain data for JSON.

    sha256: of the files. document: what a document is. bytes, documents: how many each part has. largest: the share of
    the longest document in each held-out part. overlap: the share of the 32-byte strings of each held-out part that
    also occur in the training part. left_out: bytes of held-out documents that are too long. removed: the share of the
    bytes of each held-out part that is not scored because of the overlap; only if such bytes are removed.
    """
    found: dict[str, Any] = {"sha256": text.sha256, **text.facts}
    sizes = {split: _sizes(text, part(split)) for split in SPLITS}
    found["bytes"] = {split: int(each.sum()) for split, each in sizes.items()}
    found["documents"] = {split: len(each) for split, each in sizes.items()}
    found["largest"] = {split: float(sizes[split].max() / sizes[split].sum()) for split in HELD_OUT}
    repeated, whole = _repeated(text, part, cache)
    cut = found["bytes"]["validation"]
    halves = {"validation": slice(0, cut), "test": slice(cut, None)}
    found["overlap"] = {split: _share(repeated[half], whole[half]) for split, half in halves.items()}
    if removed:
        covered = overlap.covered(repeated)
        found["removed"] = {split: float(covered[half].mean()) for split, half in halves.items()}
    return found


def counted(text: Text, part: Part, cache: Path | None) -> np.ndarray:
    """Whether each held-out symbol is outside the strings that also occur in the training part, uint8 [symbols].

    Raises TaskProblem if a part has no such symbol.
    """
    low, middle = part("validation")
    offsets = _offsets(text, low)
    found = ~overlap.covered(_repeated(text, part, cache)[0])[offsets[:-1]]
    for split, each in (("validation", found[: middle - low]), ("test", found[middle - low :])):
        if not each.any():
            raise TaskProblem(
                f"remove_overlap: all of the {split} part occurs in the training part too, so nothing would be scored."
            )
    return found.astype(np.uint8)


def _share(repeated: np.ndarray, whole: np.ndarray) -> float:
    return float(repeated.sum() / max(1, whole.sum()))


def _sizes(text: Text, bounds: tuple[int, int]) -> np.ndarray:
    """The bytes of each document in the part from `bounds[0]` to `bounds[1]`."""
    low, high = bounds
    if high <= low:
        return np.zeros(0, np.int64)
    starts = np.concatenate([[low], text.starts[(text.starts > low) & (text.starts < high)]])
    if text.characters is None:
        return np.diff(np.append(starts, high))
    widths = text.widths[text.symbols[low:high]]
    return np.add.reduceat(widths, starts - low, dtype=np.int64)


def _offsets(text: Text, low: int) -> np.ndarray:
    """The UTF-8 offset of each symbol from `low` on, and the end."""
    widths = text.widths[text.symbols[low:]]
    return np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])


def _repeated(text: Text, part: Part, cache: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Whether the 32-byte string that begins at each held-out byte occurs in the training part, and whether it lies in
    one document, [H] each."""
    low, middle = part("validation")
    places = np.union1d([low, middle], text.starts[text.starts > low])
    starts = _offsets(text, low)[places - low]
    held = text.encoded(low, len(text.symbols))

    def made() -> np.ndarray:
        return overlap.repeated(held, starts, text.encoded(*part("train")))

    whole = overlap.complete(len(held), starts)
    if cache is None:
        return made(), whole
    marks = [text.sha256, text.characters is None, low, middle, hashlib.sha256(text.starts.tobytes()).hexdigest()]
    key = hashlib.sha256(json.dumps(marks).encode()).hexdigest()[:16]
    folder = prepared(cache, f"overlap-{key}", lambda folder: np.save(folder / "repeated.npy", made()))
    return np.load(folder / "repeated.npy"), whole
