"""Reads a search file, and says everything that is wrong with it at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nas import assembly
from nas.config import Named, SearchConfig
from nas.errors import NasError, UsageError
from searchspace import documents, language
from searchspace.errors import Problem, SpaceError, nearest


def load(path: str | Path) -> SearchConfig:
    """Read a search file. Raises UsageError with every problem in it, or with what stands in the way of reading it."""
    path = Path(path)
    try:
        return _read(documents.load(path, tags=language.TAGS), path.parent)
    except SpaceError as error:
        raise UsageError(str(error)) from None


def parse(text: str, source: str = "<text>", folder: str | Path = ".") -> SearchConfig:
    """Like `load`, from text; relative paths are taken from `folder`."""
    try:
        return _read(documents.parse(text, source, tags=language.TAGS), Path(folder))
    except SpaceError as error:
        raise UsageError(str(error)) from None


def _read(document: documents.Document, folder: Path) -> SearchConfig:
    if not isinstance(document.data, dict):
        found = type(document.data).__name__
        raise SpaceError([Problem(f"expected keys such as study, space, task, but found {found}", document.mark(()))])
    problems: list[Problem] = []
    values = {str(key): value for key, value in document.data.items()}
    problems += [
        Problem("holes may stand in the space alone", document.mark(path), documents.path_text(path))
        for path in _holes({key: value for key, value in values.items() if key != "space"}, ())
    ]
    if problems:
        raise SpaceError(problems)
    if "space" in values:
        values["space"] = _space(document, folder, problems)
    try:
        config = SearchConfig(**values)
    except ValidationError as error:
        raise SpaceError(problems + [_problem(document, item) for item in error.errors()]) from None
    for part, settle in assembly.PARTS.items():
        try:
            config = settle(config, folder)
        except (NasError, ValueError) as error:
            problems.append(Problem(str(error), document.mark((part,)), part))
    if problems:
        raise SpaceError(problems)
    return config


def _holes(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where tags stand below `value`."""
    if isinstance(value, documents.Tagged):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holes(item, (*path, key))


def _space(document: documents.Document, folder: Path, problems: list[Problem]) -> str:
    """The space's text, from the file that is named or from the tree that stands in the search file itself."""
    written = document.data["space"]
    try:
        if isinstance(written, str):
            description = language.load(folder / written)
        else:
            description = language.from_data(document, ("space",))
        return language.render(description.root, description.constraints)
    except SpaceError as error:
        problems += error.problems
        return ""


def _problem(document: documents.Document, item: Any) -> Problem:
    """One of pydantic's errors, in our words: the line, the path, what came, what was expected."""
    location = tuple(part for part in item["loc"] if part in document.data or not str(part).startswith("function-"))
    path = ".".join(str(part) for part in location)
    mark = document.mark(location)
    if item["type"] == "missing":
        return Problem(f"{location[-1]!r} is missing", mark, ".".join(map(str, location[:-1])))
    if item["type"] == "extra_forbidden":
        known = _fields_at(location)
        near = nearest(str(location[-1]), known)
        return Problem(f"there is no {location[-1]!r} here.{near} Known: {', '.join(known)}", mark, path)
    message = re.sub(r"^Value error, ", "", item["msg"])
    return Problem(f"{message[0].lower()}{message[1:]}, but found {_short(item['input'])}", mark, path)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(location: tuple[Any, ...]) -> list[str]:
    """The keys that are known where `location` ends."""
    model: Any = SearchConfig
    for part in location[:-1]:
        field = model.model_fields.get(part)
        annotation = field.annotation if field else Named
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Named
    return sorted(model.model_fields)
