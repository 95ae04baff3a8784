"""Answers requests of pages with the blocks of searchspace: plain data in, plain data out.

It is a separate process for two reasons. Importing the blocks imports torch, which the server does not need. And if a
text takes too long, the process can be ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dashboards.figures.architecture import MOST_LINES, lines_of_rows
from searchspace import zoo
from searchspace.cost import Shape
from searchspace.errors import Problem, SpaceError
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows
from searchspace.space.point import Point
from searchspace.space.space import Space

OF_STUDY = "the space of the study"


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request. Mistakes in the text are listed in `problems`."""
    try:
        return ACTIONS[asked["action"]](asked)
    except SpaceError as error:
        return {"problems": [_problem(each) for each in error.problems[:50]]}


def show(asked: dict[str, Any]) -> dict[str, Any]:
    """The lines of an architecture with their costs, or the size of a space. Raises SpaceError."""
    space = Space.parse(asked["text"], "text")
    if space.dimensions:
        return {"space": True, "holes": len(space.dimensions), "size": str(space.size())}
    architecture = Architecture.parse(asked["text"], "text")
    shape = Shape(length=asked["length"], halting_steps=asked.get("depth"))
    lines = [asdict(line) for line in lines_of_rows(rows(architecture, shape))]
    return {"space": False, "hash": architecture.hash, "lines": lines}


def pieces(asked: dict[str, Any]) -> dict[str, Any]:
    """The number of calls of each timed piece, for each line. Pieces are named by their index in `keys`.

    empty: the index of the empty piece. Returns {} if the architecture is not composed of pieces.
    """
    from nas.latency.lines import per_line  # imports what measures: a second of the start of this process
    from nas.latency.pieces import CannotCompose
    from nas.latency.runs import Setting

    try:
        found, empty = per_line(Architecture.parse(asked["text"], "text"), Setting(**asked["conditions"]))
    except CannotCompose:
        return {}
    keys = list(dict.fromkeys([*found[0], *(key for each in found for key in each), empty]))
    places = {key: place for place, key in enumerate(keys)}
    lines = [{places[key]: count for key, count in each.items()} for each in found[:MOST_LINES]]
    return {"keys": keys, "lines": lines, "empty": places[empty]}


def serves(asked: dict[str, Any]) -> dict[str, Any]:
    """The choice that is used for a problem of an operation on this machine, and why; {} if it is not known."""
    from kernels.dispatch import tuned  # imports the kernels
    from kernels.dispatch.registry import operation
    from tuner import problems

    problem = problems.of_text(asked["operation"], asked["dtype"], asked["problem"])
    try:
        found = tuned.explain(operation(asked["operation"]), problem) if problem else None
    except (ValueError, LookupError):
        found = None
    return {"choice": str(found.choice), "why": found.why} if found else {}


def sample(asked: dict[str, Any]) -> dict[str, Any]:
    """A random architecture of the space in `text`, or of `space` if the text has no holes. Raises SpaceError."""
    space = Space.parse(asked["text"], "text")
    if not space.dimensions and asked.get("space"):
        space = Space.parse(asked["space"], OF_STUDY)
    return {"text": space.sample(random.Random(asked["seed"])).architecture.text()}


def mutate(asked: dict[str, Any]) -> dict[str, Any]:
    """The architecture in `text` with one hole of `space` filled differently. Raises SpaceError."""
    space = Space.parse(asked["space"], OF_STUDY)
    return {"text": space.mutate(_located(space, asked["text"]), random.Random(asked["seed"])).architecture.text()}


def crossover(asked: dict[str, Any]) -> dict[str, Any]:
    """An architecture with values from those in `text` and `other`. Raises SpaceError."""
    space = Space.parse(asked["space"], OF_STUDY)
    a, b = _located(space, asked["text"]), _located(space, asked["other"])
    return {"text": space.crossover(a, b, random.Random(asked["seed"])).architecture.text()}


def of_zoo(asked: dict[str, Any]) -> dict[str, Any]:
    """The names of the zoo, and the text of the one that `name` asks for."""
    names = zoo.names()
    return {"names": list(names), "text": zoo.load(asked["name"]).text() if asked.get("name") in names else None}


def _located(space: Space, text: str) -> Point:
    found = space.locate(Architecture.parse(text, "text"))
    if found is None:
        raise SpaceError("This architecture is not a point of the space of the study, so its holes cannot be changed.")
    return found


def _problem(problem: Problem) -> dict[str, Any]:
    """A problem as plain data. Its line is in the text that the reader edits."""
    if problem.mark and problem.mark.source == OF_STUDY:
        return {"line": None, "path": problem.path, "message": f"In {OF_STUDY}: {problem.message[:2000]}"}
    return {"line": problem.mark and problem.mark.line, "path": problem.path, "message": problem.message[:2000]}


ACTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "show": show,
    "pieces": pieces,
    "serves": serves,
    "sample": sample,
    "mutate": mutate,
    "crossover": crossover,
    "zoo": of_zoo,
}
