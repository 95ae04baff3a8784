"""Lists of lines side by side: equal lines share a row. It needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True)
class AlignedLayer:
    """One line of a comparison. place: `width`, `body[3]`, ...; texts: one for each architecture, "" if it has none."""

    place: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the architectures are not all equal here."""
        return len(set(self.texts)) > 1


def merged(place: str, lists: Sequence[Sequence[str]]) -> list[AlignedLayer]:
    """`lists` of texts merged into one after another; index `i` of `place[i]` counts the merged lines."""
    rows: list[tuple[str, ...]] = [(text,) for text in lists[0]]
    for number, texts in enumerate(lists[1:], start=1):
        rows = _with_one_more(rows, texts, number)
    return [AlignedLayer(f"{place}[{i}]", texts) for i, texts in enumerate(rows)]


def _with_one_more(rows: list[tuple[str, ...]], texts: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """`rows` of `width` columns with `texts` as one more column."""
    known = [next((text for text in row if text), "") for row in rows]
    done: list[tuple[str, ...]] = []
    for _, i, i_end, j, j_end in SequenceMatcher(None, known, texts, autojunk=False).get_opcodes():
        for k in range(max(i_end - i, j_end - j)):
            row = rows[i + k] if i + k < i_end else ("",) * width
            done.append((*row, texts[j + k] if j + k < j_end else ""))
    return done
