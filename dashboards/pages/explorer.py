"""Any architecture or space: its picture and costs, mistakes with line numbers, samples, mutations, crossovers."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from markupsafe import Markup

from dashboards.analysis.layers import USUAL, aligned, length_of, lines_of
from dashboards.explorer.process import MOST_TEXT, Unavailable, Worker
from dashboards.figures.architecture import QUANTITIES, Line, architecture_svg
from dashboards.server.sources import StudyCache, open_or_none
from dashboards.view import Ask, Column, Table, View
from searchspace.errors import SpaceError
from searchspace.language import documents

ACTIONS = ("show", "sample", "mutate", "crossover")
FRONT = 50  # trials of a front that are compared with the text
EXAMPLE = """kind: decoder
width: 64
vocabulary: 256
position: rotary
body:
  - repeat:
      times: 4
      of:
        - residual: {norm: rms_norm, of: {attention: {heads: 4}}}
        - residual: {norm: rms_norm, of: {gated_feed_forward: {gate: silu}}}
"""


def view(ask: Ask) -> View:
    """The page of the explorer."""
    parameters, worker = ask.parameters, ask.worker
    text = parameters.long_text("text", MOST_TEXT)
    action = parameters.choice("do", ACTIONS, "show")
    seed = parameters.whole("seed", 0, 0, 2**31 - 1)
    shade = parameters.choice("shade", QUANTITIES, "flops")
    studies = {f"{study.source.key}/{study.slug}": study for source in ask.sources.all() for study in _studies(source)}
    study = studies.get(parameters.choice("study", ["none", *studies], "none"))
    default, unknown = length_of(study) if study is not None else (USUAL, "")
    length = parameters.whole("length", default, 1, 1_000_000)
    notes: list[str] = [unknown] if unknown and not parameters.text("length") else []

    def asked(**request: Any) -> dict[str, Any]:
        try:
            return worker.ask(**request)
        except Unavailable as error:
            notes.append(str(error))
            return {}

    zoo = asked(action="zoo", name=parameters.text("zoo"))
    text = zoo.get("text") or text or _of_trial(study, parameters.whole("trial", -1, 0, 2**31 - 1)) or EXAMPLE
    changed: dict[str, Any] = {}
    versions = study.reader.space_versions(study.study.id) if study is not None and action != "show" else []
    if versions or action == "sample":
        other = {"other": _best(study)} if study is not None and action == "crossover" else {}
        space = {"space": versions[-1].text} if versions else {}
        changed = asked(action=action, text=text, seed=seed, **space, **other)
    elif action != "show":
        notes.append("Choose a study: only the holes of its space can be changed.")
    shown = changed.get("text") or text
    found = asked(action="show", text=shown, length=length) if not changed.get("problems") else changed
    drawn = [Line(**line) for line in found.get("lines", ())]
    problems = found.get("problems", []) if found else _mistakes(shown)
    near, cut = _near(study, worker, drawn) if study is not None and drawn else ([], "")
    return View(
        template="explorer.html",
        title="Explorer",
        values={
            "text": shown,
            "problems": problems,
            "is_space": bool(found.get("space")),
            "size": found.get("size"),
            "hash": found.get("hash"),
            "length": length,
            "costs": drawn[0].cost if drawn else {},
            "notes": list(dict.fromkeys(notes)),
            "lines": [vars(line) for line in drawn],
        },
        shown={
            "picture": Markup(architecture_svg(drawn, shade, title="The architecture")) if drawn else "",
            "quantities": list(QUANTITIES.items())[:3],
            "shade": shade,
            "zoo": zoo.get("names", []),
            "seed": (seed + (action != "show")) % 2**31,  # the next click gives another architecture
            "studies": [("none", "none"), *((key, _shown(each)) for key, each in studies.items())],
            "study": parameters.text("study", "none"),
        },
        tables={
            "near": Table(
                columns=(Column("trial", "Trial", "number"), Column("layers", "Lines that differ", "number")),
                rows=near,
                links=[f"{study.address}/trials/{row['trial']}" for row in near] if study else (),
                empty="Choose a study to see the nearest architectures of its front.",
                note=cut,
            )
        },
    )


def _mistakes(text: str) -> list[dict[str, Any]]:
    """The mistakes in a text that are found without torch: of YAML, not of blocks."""
    try:
        documents.parse(text, tags=("!choice", "!int", "!float", "!same"))
    except SpaceError as error:
        found = error.problems
        return [{"line": each.mark and each.mark.line, "path": each.path, "message": each.message} for each in found]
    return []


def _studies(source: Any) -> list[StudyCache]:
    return open_or_none(source.studies)[0] or []


def _shown(study: StudyCache) -> str:
    name = study.study.name
    return name if name == study.source.key else f"{name}, in {study.source.key}"


def _of_trial(study: StudyCache | None, number: int) -> str:
    if study is None or number < 0 or not len(study.table.rows_of([number])):
        return ""
    return study.reader.trial(study.study.id, number).architecture


def _best(study: StudyCache) -> str:
    found = study.reader.best(study.study.id, None, 1, states=("complete", "running", "stopped"), longest=True)
    return study.reader.trial(study.study.id, found[0].number).architecture if found else ""


def _near(study: StudyCache, worker: Worker, own: list[Line]) -> tuple[list[dict[str, Any]], str]:
    """The 8 architectures on the front of a study that differ from `own` in the fewest lines, nearest first.

    The second value says which of the front were compared, if not all were.
    """
    table = study.table
    if not table.signs:
        return [], ""
    front = table.front(list(table.signs))
    numbers = table.number[front[:FRONT]].tolist()
    others = [lines_of(study, worker, study.reader.trial(study.study.id, number))[0] for number in numbers]
    found = [
        {"trial": number, "layers": sum(line.differs for line in aligned([own, lines]))}
        for number, lines in zip(numbers, others)
        if lines
    ]
    cut = f"Among the first {FRONT} of {len(front)} trials on the front." if len(front) > FRONT else ""
    return sorted(found, key=itemgetter("layers"))[:8], cut
