"""Aligns architectures layer by layer, using only their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import yaml

from searchspace.language import documents

MOST = 400  # lines


@dataclass(frozen=True)
class Aligned:
    """One line of a comparison. place: an option or a layer. texts: one for each architecture, "" if it has none."""

    place: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the architectures differ in this line."""
        return len(set(self.texts)) > 1


def aligned(texts: Sequence[str]) -> list[Aligned]:
    """Options first, then the layers; equal layers share a line. Raises SpaceError if a text is not valid YAML."""
    found = [documents.parse(text).data for text in texts]
    roots: list[dict[str, Any]] = [each if isinstance(each, dict) else {"value": each} for each in found]
    options, layers = [], []
    for place in dict.fromkeys(name for root in roots for name in root):
        values = [root.get(place) for root in roots]
        if any(isinstance(value, list | dict) for value in values):
            lists = [list(map(_text, _unrolled(value, MOST))) for value in values]
            layers += [Aligned(f"{place}[{i}]", line) for i, line in enumerate(_merged(lists))]
        else:
            options.append(Aligned(place, tuple("" if value is None else _text(value) for value in values)))
    return (options + layers)[:MOST]


def _unrolled(value: Any, most: int) -> list[Any]:
    """The blocks of a list, with repeats written out unless their copies share weights; at most `most`."""
    found: list[Any] = []
    for block in value if isinstance(value, list) else [] if value is None else [value]:
        repeat = block.get("repeat") if isinstance(block, dict) and len(block) == 1 else None
        times = repeat.get("times") if isinstance(repeat, dict) else None
        if isinstance(repeat, dict) and isinstance(times, int) and not repeat.get("share_weights"):
            inner = _unrolled(repeat.get("of"), most)
            for _ in range(min(times, most)):
                found += inner
                if len(found) >= most:
                    break
        else:
            found.append(block)
    return found[:most]


def _merged(lists: Sequence[list[str]]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [(text,) for text in lists[0]]
    for width, texts in enumerate(lists[1:], start=1):
        known = [next((text for text in line if text), "") for line in lines]
        done: list[tuple[str, ...]] = []
        for _, i, i_end, j, j_end in SequenceMatcher(None, known, texts, autojunk=False).get_opcodes():
            for k in range(max(i_end - i, j_end - j)):
                line = lines[i + k] if i + k < i_end else ("",) * width
                done.append((*line, texts[j + k] if j + k < j_end else ""))
        lines = done
    return lines


def _text(value: Any) -> str:
    """A value in one line of YAML."""
    if not isinstance(value, dict | list):
        return str(value)
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True).strip()
