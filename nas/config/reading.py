"""One pass over a search file: it notes every mistake with its line, and reads what the names stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nas import tasks
from nas.config import checks, controls, kinds
from nas.config.elsewhere import TOP, elsewhere
from nas.config.parts import Parts, parts
from nas.config.schema import HIDDEN, GivenBaseline, Named, SearchConfig
from nas.errors import NasError, UsageError
from nas.finals.plan import kind, lengths, plan
from nas.objectives import registry as objectives
from nas.objectives.contract import Objective
from nas.own import blocks
from nas.own.source import own_traceback
from nas.registry import plain_message
from nas.runners import registry as runners
from nas.schedulers import registry as schedulers
from nas.store.database.engine import parse as parse_url
from nas.tasks.fields import BYTES, decided
from nas.tasks.vocabulary import Vocabulary
from nas.training.recipe import Recipe, replaced
from searchspace.cost import Shape
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import documents, language
from searchspace.space.space import Space

T = TypeVar("T")

KEYS = {*SearchConfig.model_fields, "control"}  # of a search file
OPTIONAL = ("arms", "baselines", "blocks", "control", "finals", "limits", "recipe")  # null, or nothing below: left out
STAND_INS: dict[str, Any] = {  # in place of parts that are missing or wrong, so that the others can be checked
    "study": "stand-in",
    "space": "",
    "task": "language_model",
    "objectives": ["flops"],
    "scheduler": {"full": {"steps": 1}},
    "budget": {"trials": 1},
}
STAND_IN_SPACE = "{kind: decoder, width: 32, vocabulary: 256, body: attention}"


class Reading:
    """One pass over a search file. `wrong` are the keys with a problem, which later steps leave alone.

    config: what was read so far. Each step puts into it what its names stand for: a study then needs no other file.
    """

    def __init__(self, document: documents.Document, folder: Path):
        self.document, self.folder = document, folder
        self.problems: list[Problem] = []
        self.wrong: set[str] = set()
        self.config = self._schema()

    def run(self) -> SearchConfig:
        """The valid config. Raises SpaceError with every problem."""
        self._attempt(("blocks",), self._blocks)
        self._attempt(self._named("task", self.config.task), self._task)
        space = self._attempt(("space",), self._space) or Space.parse(STAND_IN_SPACE)
        if "space" not in self.wrong:
            self._put(space=space.text())
            self.parts.space = space
        self._objectives()
        make = partial(self.parts.strategy, space=space)
        self._attempt(self._named("strategy", self.config.strategy), partial(make, self.config.strategy))
        for name, arm in self.config.arms.items():
            self._attempt(("arms", name, "strategy"), partial(make, arm.strategy))
        self._attempt(("space",), lambda: checks.check_space(space, self.parts.prepared_task), needs="task")
        self._attempt(self._named("scheduler", self.config.scheduler), self._scheduler)
        runner = self.config.runner
        self._attempt(self._named("runner", runner), lambda: runners.options(runner.name, runner.options))
        recipe = self._attempt(("recipe",), lambda: Recipe.read(self.config.recipe)) or Recipe()
        self._attempt(("recipe", "criterion"), lambda: recipe.check(self.parts.task), needs="task")
        self._attempt(("storage",), lambda: parse_url(self.config.storage))
        self._attempt(("device",), lambda: checks.check_device(self.config.device))
        self._put(baselines=self._architectures(("baselines",), self.config.baselines))
        for name, arm in self.config.arms.items():
            self._arm(name, arm.architectures)
        self._finals()
        if self.problems:
            raise SpaceError(self.problems)
        return self.config

    @property
    def parts(self) -> Parts:
        """The parts of what was read so far."""
        return parts(self.config)

    def _put(self, **changes: Any) -> None:
        self.config = self.config.model_copy(update=changes)

    def _problem(self, message: str, path: documents.Path_) -> None:
        """Note a problem. Raises SpaceError with all of them after `MAX_PROBLEMS`."""
        written = controls.place(self.document.data, tuple(path))
        if written != tuple(path) and path[-1] == "share":  # the short form has no key of this name
            message = f"share {message}"
        self.problems.append(Problem(message, self.document.mark(written), documents.path_text(written)))
        self.wrong.add(str(path[0]))
        if len(self.problems) >= documents.MAX_PROBLEMS:
            raise SpaceError(self.problems)

    def _schema(self) -> SearchConfig:
        """The file converted to its types, with placeholders for keys that are missing or wrong."""
        values = dict(self.document.data)
        for path in _holes({key: value for key, value in values.items() if key in KEYS and key != "space"}, ()):
            self._problem("a hole cannot stand here, only in the space", path)
        left_out = {key for key in OPTIONAL if values.get(key, "") is None}
        values = {key: value for key, value in values.items() if key not in self.wrong | left_out}
        if "control" in values:
            try:
                found = controls.arms(values.pop("control"), values.get("budget"))
            except ValueError as error:
                self._problem(str(error), ("control",))
                found = {}
            written = values.get("arms", {})
            values["arms"] = {**found, **written} if isinstance(written, dict) else written
        if isinstance(values.get("blocks"), dict):
            self._problem("must be a file or a list of files, such as [my_block.py]", ("blocks",))
            del values["blocks"]
        if "space" in values:
            values["space"] = ""  # it is read later, because the task decides some of its fields
        try:
            return SearchConfig(**values)
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=False)
            for item in sorted(mistakes, key=lambda each: each["type"] == "missing"):  # first the keys with a line
                self._invalid(item, SearchConfig)
        sound = {key: value for key, value in values.items() if key not in self.wrong}
        return SearchConfig(**STAND_INS | sound)

    def _blocks(self) -> None:
        """Read and run the files of the user's own blocks."""
        names = self.config.blocks
        self._put(blocks={})  # if one cannot be read
        found = blocks.read(names, self.folder)
        blocks.load(found)
        self._put(blocks=found)

    def _task(self) -> None:
        """Read the user's task file, make paths of data absolute, and prepare the task.

        Raises NasError; an error in the user's own file keeps its traceback.
        """
        written = self.config.task
        try:
            shipped, source = tasks.ship(written.written(), self.folder)
            name, options = next(iter(shipped.items()))
            self._put(task=Named(name=name, options=dict(options)), task_source=source)
            task = self.parts.prepared_task
            task.requires()
            self._put(vocabulary=task.vocabulary.to_dict() if isinstance(task.vocabulary, Vocabulary) else None)
        except (NasError, KeyboardInterrupt):
            raise
        except BaseException as error:
            where = str(self.folder / written.name)
            raise UsageError(f"The task file cannot be used:\n{own_traceback(error, where)}") from error

    def _space(self) -> Space:
        """The space, from the file that is named or from the tree in the search file itself.

        Fields that it leaves out and the task decides are filled in.
        """
        written = self.document.data["space"]
        given, length, segments = BYTES, None, 1
        if "task" not in self.wrong:
            task = self.parts.prepared_task
            given, length, segments = decided(task), self.parts.shape.length, task.segments
        if isinstance(written, str):
            found = _space_file(self.folder / written, given)
        else:
            found = language.from_data(self.document, ("space",), given)
        return Space(found.root, found.constraints, length, length and length * segments, completed=True)

    def _objectives(self) -> None:
        """Check that each objective exists, that the task reports its metric, and that no two are the same."""
        built: list[Objective] = []
        shape = Shape() if "task" in self.wrong else self.parts.shape
        for index, written in enumerate(self.config.objectives):
            path = ("objectives", index)
            if "device" in written.options:
                self._attempt(path, partial(checks.check_device, written.options["device"]))
            made = self._attempt(path, partial(objectives.make, written.written(), shape))
            if made is not None:
                built.append(made)
                self._attempt(path, partial(self._objective, made), needs="task")
        names = [each.name for each in built]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            message = f"every objective counts once, but there is more than one {', '.join(twice)}"
            self._problem(message, ("objectives",))
        if not {"objectives", "finals"} & self.wrong:
            self._attempt(("objectives", 0), lambda: checks.check_first(built, finals=bool(self.config.finals.top)))
        if "objectives" not in self.wrong:
            self.parts.objectives = built

    def _objective(self, made: Objective) -> None:
        checks.check_objective(made, self.parts.task, Path(self.config.task.name).name)

    def _scheduler(self) -> None:
        if "objectives" in self.wrong:  # without them it can only forecast
            schedulers.make(self.config.scheduler.name, None, **self.config.scheduler.options)
        else:
            self.parts.scheduler()

    def _architectures(self, path: documents.Path_, names: tuple[str, ...]) -> tuple[str, ...]:
        """The texts of the architectures with these names. `path` is where they are listed."""
        found: list[str] = []
        for index, name in enumerate(names):
            if text := self._attempt((*path, index), partial(self._architecture, name), needs="task"):
                if text in found and path[0] == "arms":
                    self._problem(f"is the same architecture as number {found.index(text) + 1}", (*path, index))
                found.append(text)
        return tuple(found)

    def _architecture(self, name: str) -> str:
        return checks.find_baseline(name, self.folder, self.parts.prepared_task).text()

    def _arm(self, name: str, names: tuple[str, ...]) -> None:
        """Read the files of the architectures made by hand that the arm `name` tries."""
        found = self._architectures(("arms", name, "architectures"), names)
        arm = self.config.arms[name].model_copy(update={"architectures": found})
        self._put(arms={**self.config.arms, name: arm})

    def _finals(self) -> None:
        """Read the files of the baselines of the finals, and check the options to try."""
        if "scheduler" not in self.wrong:  # it says how many steps the runs have
            self._attempt(("finals", "tune"), self._tries, needs="recipe")
            self._attempt(("finals", "winner_steps"), self._winner_steps)
        self._attempt(("finals", "match"), self._match, needs="objectives")
        finals = self.config.finals
        if finals.baselines is not None:
            found = [
                self._attempt(("finals", "baselines", index), partial(self._final_baseline, each), needs="task")
                for index, each in enumerate(finals.baselines)
            ]
            self._put(finals=finals.model_copy(update={"baselines": tuple(each for each in found if each)}))

    def _tries(self) -> None:
        """Raise UsageError if the recipe does not accept an option that the finals try, or a criterion not its task."""
        for options in plan(self.config).tries:
            recipe = Recipe.read(replaced(self.config.recipe, options))
            if "criterion" in options and "task" not in self.wrong:
                recipe.check(self.parts.task)

    def _winner_steps(self) -> None:
        """Raise ValueError if the winner alone would be trained longer than all entrants."""
        longest, alone = lengths(self.config)[-1], self.config.finals.winner_steps
        if alone and alone[-1] > longest:
            raise ValueError(f"must be below the longest length, {longest:,} steps, but has {alone[-1]:,}")

    def _match(self) -> None:
        """Raise ValueError if baselines are matched in latency and the search does not measure it."""
        if "latency" in self.config.finals.match and not any(map(checks.is_latency_here, self.config.objectives)):
            raise ValueError(
                "to match baselines in latency, the process of the search must measure it: add {latency: {device: "
                "cpu}} to `objectives`. A latency with `on` is measured by workers"
            )

    def _final_baseline(self, given: str | GivenBaseline) -> str | GivenBaseline:
        if isinstance(given, GivenBaseline):
            return given
        return checks.find_final_baseline(given, self.folder, self.parts.prepared_task, kind(self.config))

    def _named(self, part: str, written: Named) -> documents.Path_:
        """The path of the name of a part, with options or without."""
        return (part, written.name) if isinstance(self.document.data.get(part), dict) else (part,)

    def _attempt(self, path: documents.Path_, action: Callable[[], T], needs: str = "") -> T | None:
        """The result of `action`; None if it fails, which is noted as a problem of `path`.

        It is not called, and None is returned, if `path` or the key that it `needs` is wrong already.
        """
        if path[0] in self.wrong - {"objectives", "baselines"} or needs in self.wrong:
            return None
        try:
            return action()
        except SpaceError as error:
            self.wrong.add(str(path[0]))
            self.problems += [self._placed(each, path) for each in error.problems]
        except (NasError, ValueError) as error:
            self._problem(str(error).removeprefix(f"{path[0]}: "), path)
        return None

    def _placed(self, problem: Problem, path: documents.Path_) -> Problem:
        """`problem`, at `path` if it has no place of its own."""
        if problem.mark is not None:
            return problem
        return Problem(problem.message, self.document.mark(path), problem.path or documents.path_text(path))

    def _invalid(self, item: Any, model: type[BaseModel]) -> None:
        """Note one of pydantic's errors: the line, the path, what was found, what was expected."""
        path = tuple(part for part in item["loc"] if not str(part).startswith("function-"))
        if item["type"] == "missing":
            self._problem(f"{path[-1]!r} is missing", path)
        elif item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"])
            near = (elsewhere(str(path[0]), TOP) if len(path) == 1 else "") or nearest(str(path[-1]), known)
            listed = f"Known: {', '.join(known)}." if known else "There are no options."
            self._problem(f"there is no {path[-1]!r} here.{near} {listed}", path)
        else:
            message = plain_message(item["msg"])
            found = "" if " found " in message else f", but found {short(item['input'])}"
            self._problem(f"{message[0].lower()}{message[1:]}{found}", path)


def _space_file(path: Path, given: language.Given) -> language.Description:
    """The space in a file of its own. Raises SpaceError, UsageError for a file of another kind."""
    try:
        return language.load(path, given)
    except SpaceError:
        if other := kinds.not_a_space(path):
            raise UsageError(other) from None
        raise


def _holes(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The paths of tags below `value`."""
    if isinstance(value, documents.Tagged):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holes(item, (*path, key))


def short(value: Any) -> str:
    """`value` as Python writes it, at most 60 characters."""
    text = repr(value[:100] if isinstance(value, str | list) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The valid keys at the end of `location`."""
    for part in location[:-1]:
        field = model.model_fields.get(part)
        annotation = field.annotation if field else Named
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Named
    return sorted((KEYS if model is SearchConfig else set(model.model_fields)) - set(HIDDEN))
