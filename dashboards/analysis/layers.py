"""The lines of architectures with their costs: those that the search stored, else computed with torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboards.explorer.process import Unavailable, Worker
from dashboards.figures.architecture import Line, lines_of_rows
from nas.report import trials
from nas.store import Trial
from searchspace.cost import Shape
from searchspace.lines import AlignedLayer, Drawing, kept, merged

if TYPE_CHECKING:
    from dashboards.server.sources import StudyCache

USUAL = 1024  # positions, if the length of the task is unknown
LOOKED_AT = 5  # trials in which the length is looked for


def lines_of(study: StudyCache, worker: Worker, trial: Trial) -> tuple[list[Line], str]:
    """The lines of a trial, and what is wrong with them, or with their costs. The list is empty if there are none."""
    if drawing := _drawing(study, trial.architecture_hash):
        return lines_of_rows(drawing.rows), ""
    length, remark = length_of(study)
    shape = trials.at_trial_depth(study.reader, study.study, trial.number, Shape(length=length))
    try:
        found = worker.ask(action="show", text=trial.architecture, length=length, depth=shape.halting_steps)
    except Unavailable as error:
        return [], str(error)
    if "lines" in found:
        return [Line(**line) for line in found["lines"]], remark
    return [], " ".join(each["message"] for each in found.get("problems", []))


def length_of(study: StudyCache) -> tuple[int, str]:
    """(the sequence length for which a study stores costs, a remark if it is a guess)."""
    for number in study.table.number[:LOOKED_AT].tolist():
        if drawing := _drawing(study, study.reader.trial(study.study.id, number).architecture_hash):
            return drawing.length, ""
    config: Any = study.study.config
    length = ((config.get("task") or {}).get("options") or {}).get("length") if isinstance(config, dict) else None
    if isinstance(length, int):
        return length, ""
    return USUAL, f"The length of the task of this study is unknown, so costs are for {USUAL:,} positions."


def aligned(architectures: Sequence[Sequence[Line]]) -> list[AlignedLayer]:
    """The lines of several architectures side by side; equal lines share a row."""
    return merged("line", [[each.text for each in lines] for lines in architectures])


def _drawing(study: StudyCache, hash: str) -> Drawing | None:
    return kept(study.reader.drawing(study.study.id, hash))
