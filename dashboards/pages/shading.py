"""The picture of an architecture is shaded by a cost, or by the measured time of each line.

The time of a line is that of its measured pieces, which all studies of a database share.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboards.explorer.process import Unavailable, Worker
from dashboards.figures.architecture import QUANTITIES, Line
from dashboards.view import Ask, Column, Table
from nas.latency import stored
from nas.store import Reader, Trial

MOST = 8  # conditions that a page offers, at most
LOOKED_AT = 500  # measured architectures that are read to find conditions
SPLIT = ("prefill", "decode", "train")  # phases in which pieces are timed
COSTS = ("flops", "parameters", "state_bytes")
NOTE = (
    "The time of a line is the sum of the times of its blocks, which were timed one by one. The time of a norm is part "
    "of the block around it. The embedding and the logits are part of the first line."
)


@dataclass(frozen=True, kw_only=True)
class Shaded:
    """The lines of the picture.

    offered: {word in the address: name} of the possible shadings. chosen: one of them. quantity: the cost of the lines
    that shades them. is_settled: False if more shadings may be offered soon.
    """

    lines: Sequence[Line]
    offered: Mapping[str, str]
    chosen: str = "flops"
    quantity: str = "flops"
    note: str = ""
    is_settled: bool = True

    def table(self) -> Table:
        """The numbers of the picture as a table."""
        names = [name for name in QUANTITIES if any(name in line.cost for line in self.lines)]
        labels = QUANTITIES | {"milliseconds": "Time (ms)"}
        kinds = {"state_bytes": "bytes"}
        columns = [Column(name, labels[name], kinds.get(name, "number")) for name in names]
        rows = [{"block": f"{'· ' * line.depth}{line.label}", "copies": line.count, **line.cost} for line in self.lines]
        return Table(columns=[Column("block", "Block"), Column("copies", "Copies", "number"), *columns], rows=rows)


def shaded(ask: Ask, trial: Trial, lines: Sequence[Line]) -> Shaded:
    """The lines with the shading that the address asks for. Raises BadRequest for an unknown shading."""
    offered = {name: QUANTITIES[name] for name in COSTS}
    made: dict[str, Sequence[Line]] = {}
    notes: dict[str, str] = {}
    is_settled = True
    for each in conditions_of(ask.of.reader, trial.evidence or {}):
        try:
            made[each.key], notes[each.key] = timed(ask.of.reader, ask.worker, trial.architecture, lines, each)
        except Unavailable:  # the note below the picture says why there are no costs
            made[each.key], notes[each.key], is_settled = lines, "", False
        if any("milliseconds" in line.cost for line in made[each.key]):
            offered[each.key] = f"Time: {each.text}"
    chosen = ask.parameters.choice("shade", {**offered, **notes}, "flops")
    if chosen in COSTS or chosen not in offered:
        missing = next(iter(notes.values()), "") if trial.evidence and len(offered) == len(COSTS) else ""
        missing = missing and f"The blocks cannot be shaded by measured time. {missing}"
        quantity = chosen if chosen in COSTS else "flops"
        return Shaded(
            lines=lines, offered=offered, chosen=quantity, quantity=quantity, note=missing, is_settled=is_settled
        )
    note = f"{NOTE} {notes[chosen]}".strip()
    return Shaded(lines=made[chosen], offered=offered, chosen=chosen, quantity="milliseconds", note=note)


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
