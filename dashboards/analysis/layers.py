"""Architectures side by side: the lines of or those of the texts where these cannot be computed."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.explorer.process import Unavailable, Worker
from dashboards.figures.outline import outline
from searchspace.lines import AlignedLayer, merged

MOST = 1000  # lines of a text: the time grows with their square


def aligned(worker: Worker, texts: Sequence[str]) -> tuple[list[AlignedLayer], str]:
    """The lines of these architectures, and why they are those of the texts; "" if they are those of `nas show`.

    Raises SpaceError if a text is not valid YAML.
    """
    try:
        found = worker.ask(action="align", texts=list(texts))
        if "lines" in found:
            return [AlignedLayer(line["place"], tuple(line["texts"])) for line in found["lines"]], ""
        problem = found["problems"][0]["message"].partition(" Known: ")[0]  # the list of all blocks would be long
    except Unavailable as error:
        problem = str(error)
    return _of_texts(texts), problem


def differing(worker: Worker, text: str, others: Sequence[str]) -> list[int | None]:
    """In how many lines each of `others` differs from `text`; None if it cannot be read.

    Raises SpaceError if a text is not valid YAML.
    """
    try:
        found = worker.ask(action="differing", text=text, others=list(others))
        return found.get("counts", [None] * len(others))
    except Unavailable:
        return [sum(line.differs for line in _of_texts([text, other])) for other in others]


def _of_texts(texts: Sequence[str]) -> list[AlignedLayer]:
    """The lines of the texts, without the defaults of blocks: only the code of the blocks knows them."""
    return merged("line", [_outlined(text) for text in texts])


def _outlined(text: str) -> list[str]:
    found = [
        f"{'| ' * line.depth}{line.label}{f' x {line.count}' if line.count > 1 else ''}" for line in outline(text, None)
    ]
    return found if len(found) <= MOST else [*found[:MOST], f"{len(found) - MOST:,} more lines"]
