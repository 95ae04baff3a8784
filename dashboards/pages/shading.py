"""The shading of the picture of an architecture: by a cost, or by the measured time of its blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.analysis import times
from dashboards.explorer.process import Unavailable
from dashboards.figures.architecture import QUANTITIES, Line
from dashboards.view import Ask, Column, Table
from nas.store import Trial

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
    for each in times.conditions_of(ask.of.reader, trial.evidence or {}):
        try:
            made[each.key], notes[each.key] = times.timed(ask.of.reader, ask.worker, trial.architecture, lines, each)
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
