"""Which measured pieces each line of a drawing consists of, so that a picture can show where the time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from nas.latency.pieces import Call, CannotCompose, calls, within
from nas.latency.predicted import EMPTY
from nas.latency.runs import Setting
from nas.latency.table import piece_problem
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import Placed, rows
from searchspace.registry import Configured


def per_line(architecture: Architecture, setting: Setting) -> tuple[list[Counter[str]], str]:
    """For each row of `drawing.rows`, how often it calls which piece, by its problem; and the problem of an empty one.

    Empty for a line whose time is part of that of another line, such as a norm. The optimiser's step is in no line.
    Raises CannotCompose if the architecture is not a sum of pieces.
    """
    drawn = rows(architecture, Shape(length=setting.length, halting_steps=setting.depth))
    model = architecture.configured
    found = [_counted(calls(model, setting), setting)]
    found += [_below(drawn, place, model, setting) for place in range(1, len(drawn))]
    for place in reversed(range(len(drawn))):
        if drawn[place].label == "repeat":
            found[place] = sum((found[below] for below in _children(drawn, place)), Counter())
    empty = Call(replace(EMPTY, length=setting.length, width=model.config.width))
    return found, piece_problem(setting, empty)


def _below(drawn: Sequence[Placed], place: int, model: Configured, setting: Setting) -> Counter[str]:
    """The pieces of all calls of the block of one line."""
    row, streaming = drawn[place], setting.phase == "decode"
    part, above = row.part, [drawn[each] for each in _ancestors(drawn, place)]
    if part.block is None or part.block.type.role != "block" or row.label == "repeat":
        return Counter()
    if streaming and any(each.part.whole for each in (row, *above)):
        return Counter()
    times = fresh = 1
    for each in (row, *above):
        times *= _times(each, streaming)
        fresh *= 1 if each.part.shared else _times(each, streaming)
    again = any(each.part.recomputed for each in (row, *above) if each.label != "repeat")
    try:
        once = within(part, model.config, setting, again=again)
    except CannotCompose:
        return Counter()
    first, later = _counted(once, setting), _counted([replace(call, fresh=False) for call in once], setting)
    return _times_each(first, fresh) + _times_each(later, times - fresh)


def _times(row: Placed, streaming: bool) -> int:
    """How often the block of a line is called in one call of the line above; expected numbers while not streaming."""
    expected = row.part.expected
    if expected is None or (streaming and not row.part.skipped) or row.label == "repeat":
        return row.count
    return row.count // row.part.count * int(expected)


def _times_each(counted: Counter[str], times: int) -> Counter[str]:
    return Counter({key: times * count for key, count in counted.items()})


def _counted(made: Sequence[Call], setting: Setting) -> Counter[str]:
    return Counter(piece_problem(setting, each) for each in made)


def _ancestors(drawn: Sequence[Placed], place: int) -> list[int]:
    """The lines around a line, without the model itself, the innermost first."""
    found, depth = [], drawn[place].depth
    for above in range(place - 1, 0, -1):
        if drawn[above].depth < depth:
            found.append(above)
            depth = drawn[above].depth
    return found


def _children(drawn: Sequence[Placed], place: int) -> list[int]:
    found = []
    for below in range(place + 1, len(drawn)):
        if drawn[below].depth <= drawn[place].depth:
            break
        if drawn[below].depth == drawn[place].depth + 1:
            found.append(below)
    return found
