"""Reads a search file, and says everything that is wrong with it at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nas.config import factory
from nas.config.schema import Named, SearchConfig
from nas.errors import NasError, UsageError
from nas.objectives import registry as objectives
from nas.store.engine import parse as parse_url
from nas.training.recipe import Recipe
from searchspace.cost import Shape
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import documents, language
from searchspace.space.space import Space

T = TypeVar("T")


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


STAND_INS: dict[str, Any] = {  # for parts that are missing or wrong, so that the others can still be looked at
    "study": "stand-in",
    "space": "",
    "task": "language_model",
    "objectives": ["flops"],
    "scheduler": {"full": {"steps": 1}},
    "budget": {"trials": 1},
}
STAND_IN_SPACE = "{kind: decoder, width: 32, vocabulary: 256, body: attention}"
HIDDEN = "task_source"  # written by us, when a study keeps its search


def _read(document: documents.Document, folder: Path) -> SearchConfig:
    if not isinstance(document.data, dict):
        expected = "expected keys such as study, space, task"
        raise SpaceError([Problem(f"{expected}, but found {documents.describe(document.data)}", document.mark())])
    reading = _Reading(document, folder)
    config = reading.parts(reading.schema())
    if reading.problems:
        raise SpaceError(reading.problems)
    return config


class _Reading:
    """One pass over a search file. `wrong` are the keys with a problem, which later steps leave alone."""

    def __init__(self, document: documents.Document, folder: Path):
        self.document, self.folder = document, folder
        self.problems: list[Problem] = []
        self.wrong: set[str] = set()

    def problem(self, message: str, path: documents.Path_) -> None:
        self.problems.append(Problem(message, self.document.mark(path), documents.path_text(path)))
        self.wrong.add(str(path[0]))

    def schema(self) -> SearchConfig:
        """Everything as its type wants it, with stand-ins for what is not."""
        values = dict(self.document.data)
        for path in _holes({key: value for key, value in values.items() if key != "space"}, ()):
            self.problem("a hole cannot stand here, only in the space", path)
        values = {key: value for key, value in values.items() if key not in self.wrong}
        if "space" in values:
            values["space"] = self.attempt(("space",), self.space) or ""
        try:
            return SearchConfig(**values)
        except ValidationError as error:
            for item in error.errors():
                self.invalid(item, SearchConfig)
        sound = {key: value for key, value in values.items() if key not in self.wrong}
        return SearchConfig(**STAND_INS | sound)

    def space(self) -> str:
        """The space's text, from the file that is named or from the tree that stands in the search file itself."""
        written = self.document.data["space"]
        if isinstance(written, str):
            description = language.load(self.folder / written)
        else:
            description = language.from_data(self.document, ("space",))
        Space(description.root, description.constraints)
        return language.render(description.root, description.constraints)

    def parts(self, config: SearchConfig) -> SearchConfig:
        """What the names stand for, and what else has to be read: afterwards a study needs no other file."""
        task = self.attempt(self.named("task", config.task), lambda: factory.gather_task(config, self.folder))
        config = task or config
        for index, each in enumerate(config.objectives):
            self.attempt(("objectives", index), partial(objectives.make, each.written(), Shape()))
        if "objectives" not in self.wrong:
            self.attempt(("objectives",), lambda: _check_distinct(config))
        space = Space.parse(STAND_IN_SPACE if "space" in self.wrong else config.space)
        self.attempt(self.named("strategy", config.strategy), lambda: factory.strategy(config, space))
        self.attempt(("space",), lambda: factory.check_space(config), needs="task")
        self.attempt(self.named("scheduler", config.scheduler), lambda: factory.scheduler(config))
        self.attempt(self.named("runner", config.runner), lambda: factory.runner_options(config))
        self.attempt(("recipe",), lambda: Recipe.read(config.recipe))
        self.attempt(("storage",), lambda: parse_url(config.storage))
        found = [
            self.attempt(("baselines", index), partial(self.baseline, config, name), needs="task")
            for index, name in enumerate(config.baselines)
        ]
        return config.model_copy(update={"baselines": tuple(text for text in found if text)})

    def baseline(self, config: SearchConfig, name: str) -> str:
        return factory.find_baseline(config, name, self.folder).text()

    def named(self, part: str, written: Named) -> documents.Path_:
        """Where the name of a part stands, with options or without."""
        return (part, written.name) if isinstance(self.document.data.get(part), dict) else (part,)

    def attempt(
        self, path: documents.Path_, action: Callable[[], T], needs: str = "", model: type[BaseModel] = SearchConfig
    ) -> T | None:
        """What `action` gives; None, with the problem noted, where it is refused, or where what it needs is wrong.

        `model` is what pydantic reads in `action`.
        """
        if path[0] in self.wrong - {"objectives", "baselines"} or needs in self.wrong:
            return None
        try:
            return action()
        except ValidationError as error:
            for item in error.errors():
                self.invalid(item, model, path)
        except SpaceError as error:
            self.wrong.add(str(path[0]))
            self.problems += [self.placed(each, path) for each in error.problems]
        except (NasError, ValueError) as error:
            self.problem(str(error).removeprefix(f"{path[0]}: "), path)
        return None

    def placed(self, problem: Problem, path: documents.Path_) -> Problem:
        """A problem without a place is one of `path`."""
        if problem.mark is not None:
            return problem
        return Problem(problem.message, self.document.mark(path), problem.path or documents.path_text(path))

    def invalid(self, item: Any, model: type[BaseModel], above: documents.Path_ = ()) -> None:
        """One of pydantic's errors, in our words: the line, the path, what came, what was expected."""
        path = (*above, *(part for part in item["loc"] if not str(part).startswith("function-")))
        if item["type"] == "missing":
            self.problem(f"{path[-1]!r} is missing", path)
        elif item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"])
            near = nearest(str(path[-1]), known)
            listed = f"Known: {', '.join(known)}." if known else "There are no options."
            self.problem(f"there is no {path[-1]!r} here.{near} {listed}", path)
        else:
            message = re.sub(r"^Value error, ", "", item["msg"])
            self.problem(f"{message[0].lower()}{message[1:]}, but found {_short(item['input'])}", path)


def _check_distinct(config: SearchConfig) -> None:
    names = [objectives.make(each.written(), Shape()).name for each in config.objectives]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"every objective counts once, but there is more than one {', '.join(twice)}")


def _holes(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Where tags stand below `value`."""
    if isinstance(value, documents.Tagged):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holes(item, (*path, key))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model: Any, location: tuple[Any, ...]) -> list[str]:
    """The keys that are known where `location` ends."""
    for part in location[:-1]:
        field = model.model_fields.get(part)
        annotation = field.annotation if field else Named
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Named
    return sorted(set(model.model_fields) - {HIDDEN})
