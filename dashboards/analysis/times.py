"""The time of each line of an architecture, from measured pieces that all studies of a database share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboards.explorer.process import Worker
from dashboards.figures.architecture import Line
from nas.latency import stored
from nas.store import Reader

MOST = 8  # conditions that a page offers, at most
LOOKED_AT = 500  # measured architectures that are read to find conditions
SPLIT = ("prefill", "decode", "train")  # phases in which pieces are timed


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Where and how latencies were measured. device: the key of the device; name: its name."""

    device: str
    name: str
    values: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A word for addresses: decode-batch1-length128-threads2-0123456789ab."""
        phase, *others = (f"{'' if name == 'phase' else name}{value}" for name, value in self.values.items())
        return "-".join([phase, *others, self.device])

    @property
    def text(self) -> str:
        """A description: decode, length 128, on Intel Xeon."""
        shown = [f"{name} {value}" for name, value in self.values.items() if name != "phase"]
        return f"{self.values['phase']}, {', '.join(shown)}, on {self.name}"


def conditions_of(reader: Reader, evidence: Mapping[str, Mapping[str, Any]]) -> list[Conditions]:
    """The conditions of the latencies in the evidence of a trial, else those of the measured architectures."""
    names = {key: str(found.get("name") or key) for key, found in reader.devices().items()}
    found = [(each["device"]["key"], stored.conditions(each)) for each in evidence.values() if "device" in each]
    if not found:
        found = [
            (each.device, stored.conditions(json.loads(each.problem)))
            for each in reader.measured(LOOKED_AT, only=[stored.MODEL])
        ]
    kept = [Conditions(device=key, name=names[key], values=each) for key, each in found if key in names]
    return list({each.key: each for each in kept if each.values.get("phase") in SPLIT}.values())[:MOST]


def timed(
    reader: Reader, worker: Worker, text: str, lines: Sequence[Line], conditions: Conditions
) -> tuple[list[Line], str]:
    """The lines with the milliseconds of their pieces, and a sentence about missing times.

    A line has no time if one of its pieces was not timed, or if its time is part of the line around it, as for a norm.
    Raises Unavailable without torch.
    """
    asked = worker.ask(action="pieces", text=text, conditions=dict(conditions.values))
    if "lines" not in asked or len(asked["lines"]) < len(lines):
        return list(lines), "This architecture is not a sum of pieces, so only its total time is known."
    keys: list[str] = asked["keys"]
    rows = reader.measurements(stored.PIECE, device=conditions.device, problem=keys)
    known = {row.problem: stored.milliseconds(row) for row in rows if row.milliseconds}  # the newest row counts
    calls = Counter({int(place): count for place, count in asked["lines"][0].items()})
    empty = known.get(keys[asked["empty"]], (0.0, 0.0))[1]
    each = {
        place: max(0.0, (known[keys[place]][0] + (count - 1) * known[keys[place]][1]) / count - empty)
        for place, count in calls.items()
        if keys[place] in known
    }
    missing = len(calls) - len(each)
    if not each:
        return list(lines), "No piece of this architecture was timed alone, so only its total time is known."
    made = [_with_time(line, pieces, each) for line, pieces in zip(lines, asked["lines"])]
    return made, f"{missing} of {len(calls)} pieces have no measured time." if missing else ""


def _with_time(line: Line, pieces: Mapping[str, int], each: Mapping[int, float]) -> Line:
    if not pieces or any(int(place) not in each for place in pieces):
        return line
    time = sum(count * each[int(place)] for place, count in pieces.items())
    return replace(line, cost=line.cost | {"milliseconds": time})
