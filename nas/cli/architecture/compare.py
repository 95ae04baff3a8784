"""Architectures side by side, as `nas show` prints several."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nas.cli.columns import Rows, print_columns, wrapped
from nas.cli.options import cost_shape
from nas.cli.output import note, print_json

if TYPE_CHECKING:
    from searchspace.cost import Shape
    from searchspace.model.architecture import Architecture

WIDE = 120  # columns of a page that is not a terminal


def compare(names: Sequence[str], length: int | None, storage: str | None, as_json: bool) -> None:
    """Print architectures side by side: their layers, their costs, and the scores of trials.

    Lines that differ begin with `*`, and are coloured on a terminal. If the terminal is too narrow for all of them,
    there are several tables, one below the other.
    """
    from nas import architectures
    from searchspace.model.halting import halting_note
    from searchspace.model.layers import aligned

    found = [architectures.find(name, storage) for name in names]
    shapes = [cost_shape(name, storage, length=length) for name in names]
    if length is None:
        length = _common_length(shapes)
    shapes = [_of_length(shape, length) for shape in shapes]
    layers = aligned(found)
    scores, costs = _scores(names, storage), _costs(found, shapes)
    if as_json:
        _print_json(names, found, layers, scores, costs, length)
        return
    if len({each.hash for each in found}) == 1:
        note("They are the same architecture.")
    sections: list[tuple[str, Rows]] = [("", [(layer.place, layer.texts) for layer in layers])]
    sections += (
        [("scores", [(name, [_number(value) for value in values]) for name, values in scores])] if scores else []
    )
    sections += [(f"cost at length {length}", _cost_lines(costs))]
    width = shutil.get_terminal_size((WIDE, 24)).columns
    print_columns(names, sections, width)
    for name, text in zip(names, map(halting_note, found, shapes), strict=True):
        if text:
            note(wrapped(f"{name}: {text}", width))


def _common_length(shapes: Sequence[Shape]) -> int:
    """The length of the trials' task if all trials agree on it; otherwise the usual length."""
    from nas.cli.options import LENGTH

    known = {shape.length for shape in shapes if shape.length != LENGTH}
    return known.pop() if len(known) == 1 else LENGTH


def _of_length(shape: Shape, length: int) -> Shape:
    from dataclasses import replace

    return replace(shape, length=length)


def _costs(found: Sequence[Architecture], shapes: Sequence[Shape]) -> Rows:
    """Every cost that at least one architecture has."""
    from searchspace.model.build import cost

    numbers = [cost(each, shape).numbers() for each, shape in zip(found, shapes, strict=True)]
    rows = [(name, [each[name] for each in numbers]) for name in numbers[0]]
    return [(name, values) for name, values in rows if any(values)]


def _cost_lines(costs: Rows) -> Rows:
    """`costs` as text lines. The FLOPs of all steps are shown only if some model halts earlier."""
    from searchspace.cost import LABELS
    from searchspace.lines import human, human_bytes

    by_name = dict(costs)
    shown = [name for name in by_name if name != "maximum_flops" or by_name[name] != by_name["flops"]]
    return [
        (LABELS[name], [human_bytes(value) if "bytes" in name else human(value) for value in by_name[name]])
        for name in shown
    ]


def _scores(names: Sequence[str], storage: str | None) -> Rows:
    """The objectives of the trials among `names`, their rung and their state."""
    found = [_trial_scores(name, storage) for name in names]
    keys = dict.fromkeys(key for each in found for key in each)
    return [(key, [each.get(key) for each in found]) for key in keys]


def _trial_scores(name: str, storage: str | None) -> dict[str, Any]:
    from nas.location import open_existing, trial_reference

    reference = trial_reference(name)
    if reference is None:
        return {}
    store, study = open_existing(reference[0], storage)
    with store:
        trial = store.trial(study.id, reference[1])
    return {**trial.values, "rung": trial.rung, "state": trial.state.value}


def _number(value: Any) -> str:
    from nas.report.tables import short

    return "" if value is None else short(value) if isinstance(value, float) else str(value)


def _print_json(
    names: Sequence[str], found: Sequence[Architecture], layers: Any, scores: Rows, costs: Rows, length: int
) -> None:
    """The same as JSON. `first` and `second` repeat the first two of `values`."""
    from searchspace.model.architecture import diff

    def line(key: str, name: str, values: Sequence[Any]) -> dict[str, Any]:
        return {key: name, "first": values[0], "second": values[1], "values": list(values)}

    keys = ("kind", "path", "first", "second")
    changes = [
        {"of": name, **dict(zip(keys, (each.kind, each.path, *each.texts), strict=True))}
        for name, other in zip(names[1:], found[1:], strict=True)
        for each in diff(found[0], other)
    ]
    described = [{"name": name, "hash": each.hash} for name, each in zip(names, found, strict=True)]
    print_json(
        {
            "first": described[0],
            "second": described[1],
            "architectures": described,
            "layers": [{"place": each.place, "texts": each.texts, "differs": each.differs} for each in layers],
            "differences": changes,
            "scores": [line("score", *row) for row in scores],
            "length": length,
            "costs": [line("cost", *row) for row in costs],
        }
    )
