"""The facts about the data of a study as text: documents, sizes, and overlap with the training text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nas.report.tables import short
from searchspace.wording import plural

FEW = 40  # documents in a held-out part, for an interval that can be believed
MOST = 0.5  # of a held-out part in one document
PARTS = {"train": "training", "validation": "validation", "test": "test"}


def data_lines(facts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """(name, text) for each subject of `Task.data_facts`; empty if the task gives no facts."""
    if not facts or not {"documents", "bytes"} <= facts.keys():
        return []
    counts, sizes = facts["documents"], facts["bytes"]
    parts = [f"{PARTS[part]} {counts[part]} ({short(sizes[part])} bytes)" for part in PARTS if part in counts]
    lines = [("documents", f"{', '.join(parts)}; a document is {facts['document']}")]
    if facts.get("left_out"):
        what = "bytes of held-out documents: ends of long ones, and copies"
        lines.append(("left out", f"{short(facts['left_out'])} {what}"))
    if "overlap" in facts:
        lines.append(("overlap", _overlap(facts)))
    long = {part: count for part, count in facts.get("too_long", {}).items() if count}
    if long:
        listed = ", ".join(f"{count} of {PARTS[part]}" for part, count in long.items())
        lines.append(("too long", f"{listed}: left out of training, and cut where they are scored"))
    return [*lines, *(("warning", text) for text in _warnings(facts))]


def _overlap(facts: Mapping[str, Any]) -> str:
    shares = " and ".join(f"{share:.1%} of the {part} text" for part, share in facts["overlap"].items())
    text = f"{shares} is in the training text too (strings of 32 bytes)"
    if "repeated" in facts:
        whole = " and ".join(f"{share:.1%} of the {part} pairs" for part, share in facts["repeated"].items())
        text += f"; {whole} have a target sentence of the training part"
    if "removed" not in facts:
        return text
    removed = " and ".join(f"{share:.1%} of the {part} text" for part, share in facts["removed"].items())
    return f"{text}; these strings, {removed}, are not scored"


def _warnings(facts: Mapping[str, Any]) -> list[str]:
    found = []
    for part in ("validation", "test"):
        count = facts["documents"].get(part, FEW)
        if count < FEW:
            found.append(
                f"the {part} part has only {plural(count, 'document')}, so an interval over documents is rough"
            )
        share = facts.get("largest", {}).get(part, 0.0)
        if share > MOST:
            found.append(f"one document is {share:.0%} of the {part} part")
    return found
