"""The reader of search files. It reports all mistakes of a file together, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nas.config import checks, controls, factory, kinds
from nas.config.elsewhere import TOP, elsewhere
from nas.config.schema import HIDDEN, GivenBaseline, Named, SearchConfig
from nas.errors import NasError, UsageError
from nas.finals.expected import kind
from nas.objectives import registry as objectives
from nas.objectives.contract import Objective
from nas.own import blocks
from nas.registry import plain_message
from nas.store.database.engine import parse as parse_url
from nas.tasks.fields import BYTES, decided
from nas.training.recipe import Recipe
from searchspace.cost import Shape
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import documents, language
from searchspace.language.collecting import collected_later
from searchspace.space.space import Space

T = TypeVar("T")


@collected_later()
def load(path: str | Path, changes: Sequence[str] = ()) -> SearchConfig:
    """Read a search file. changes: `KEY=VALUE`, values in place of those in the file.

    Raises UsageError with every mistake in it, or if it cannot be read.
    """
    path = Path(path)
    try:
        document = documents.load(path, tags=language.TAGS)
        for change in changes:
            _change(document.data, change)
        return _read(document, path.parent)
    except SpaceError as error:
        raise UsageError(str(error)) from None


def _change(data: Any, change: str) -> None:
    """Put the value of `a.b=value`, written in YAML, into `data`; the name of an item of a list is its number from 0.

    Raises UsageError if there is no such place.
    """
    path, equals, text = change.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise UsageError(f"--set needs KEY=VALUE such as budget.trials=20, but got {change!r}.")
    if not text.strip():
        raise UsageError(f"--set {change} has no value; `{change}null` takes a value away.")
    place = data
    for number, name in enumerate(names[:-1]):
        if isinstance(place, dict):
            if place.get(name) is None:  # left out, or nothing stands below it
                place[name] = {}
            place = place[name]
        else:
            place = place[_item(place, names[: number + 1], change)]
    key = names[-1] if isinstance(place, dict) else _item(place, names, change)
    place[key] = documents.parse(text, "--set", tags=language.TAGS).data


def _item(place: Any, names: Sequence[str], change: str) -> int:
    """The number of the last of `names` in the list `place`. Raises UsageError if it is no list or has no such item."""
    above, name = ".".join(names[:-1]), names[-1]
    if not isinstance(place, list):  # such as a part that is written by its name alone
        raise UsageError(f"--set {change}: {above} is {_short(place)}, which is not a mapping and has no {name!r}.")
    if not (name.isdecimal() and int(name) < len(place)):
        raise UsageError(f"--set {change}: {above} is a list, whose items are 0 to {len(place) - 1}, not {name!r}.")
    return int(name)


def loaded(config: Any, caller: str) -> SearchConfig:
    """`config` itself, or the search file at this path. Raises UsageError if it is neither, or the file is invalid."""
    if isinstance(config, SearchConfig):
        return config
    if isinstance(config, str | Path) and str(config) and not _is_text(str(config)):
        return load(config)
    raise UsageError(
        f"{caller} expects the path of a search file, or a SearchConfig that `nas.config.searchfile.parse` made from "
        f"YAML text, but got {_short(config)} ({type(config).__name__})."
    )


def _is_text(given: str) -> bool:
    """Whether this is the text of a search file in place of its path."""
    return "\n" in given or ": " in given


@collected_later()
def parse(text: str, source: str = "<text>", folder: str | Path = ".") -> SearchConfig:
    """Like `load`, from text; relative paths are taken from `folder`. Raises UsageError with every mistake in it."""
    try:
        return _read(documents.parse(text, source, tags=language.TAGS), Path(folder))
    except SpaceError as error:
        raise UsageError(str(error)) from None


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


def _read(document: documents.Document, folder: Path) -> SearchConfig:
    if not isinstance(document.data, dict):
        expected = "expected keys such as study, space, task"
        raise SpaceError([Problem(f"{expected}, but found {documents.describe(document.data)}", document.mark())])
    if "kind" in document.data and not {"study", "space", "task"} & document.data.keys():
        raise SpaceError([Problem(SPACE_FILE, document.mark(("kind",)))])
    reading = _Reading(document, folder)
    config = reading.parts(reading.schema())
    if reading.problems:
        raise SpaceError(reading.problems)
    return config


SPACE_FILE = """\
this file is a space or an architecture, not a search file. A search file names the space, and says what to train on:
  study: my_study
  space: FILE
  task: language_model
  objectives: [bits_per_byte, flops]
  scheduler: {halving: {rungs: [40, 120, 360]}}
  budget: {trials: 50}
`nas space FILE` looks into a space, `nas train FILE` trains an architecture"""


def _space_file(path: Path, given: language.Given) -> language.Description:
    """The space in a file of its own. Raises SpaceError, UsageError for a file of another kind."""
    try:
        return language.load(path, given)
    except SpaceError:
        if other := kinds.not_a_space(path):
            raise UsageError(other) from None
        raise


class _Reading:
    """One pass over a search file. `wrong` are the keys with a problem, which later steps leave alone."""

    def __init__(self, document: documents.Document, folder: Path):
        self.document, self.folder = document, folder
        self.problems: list[Problem] = []
        self.wrong: set[str] = set()

    def problem(self, message: str, path: documents.Path_) -> None:
        """Note a problem. Raises SpaceError with all of them after `MAX_PROBLEMS`."""
        written = controls.place(self.document.data, tuple(path))
        if written != tuple(path) and path[-1] == "share":  # the short form has no key of this name
            message = f"share {message}"
        self.problems.append(Problem(message, self.document.mark(written), documents.path_text(written)))
        self.wrong.add(str(path[0]))
        if len(self.problems) >= documents.MAX_PROBLEMS:
            raise SpaceError(self.problems)

    def schema(self) -> SearchConfig:
        """The file converted to its types, with placeholders for keys that are missing or wrong."""
        values = dict(self.document.data)
        for path in _holes({key: value for key, value in values.items() if key in KEYS and key != "space"}, ()):
            self.problem("a hole cannot stand here, only in the space", path)
        left_out = {key for key in OPTIONAL if values.get(key, "") is None}
        values = {key: value for key, value in values.items() if key not in self.wrong | left_out}
        if "control" in values:
            try:
                found = controls.arms(values.pop("control"), values.get("budget"))
            except ValueError as error:
                self.problem(str(error), ("control",))
                found = {}
            written = values.get("arms", {})
            values["arms"] = {**found, **written} if isinstance(written, dict) else written
        if isinstance(values.get("blocks"), dict):
            self.problem("must be a file or a list of files, such as [my_block.py]", ("blocks",))
            del values["blocks"]
        if "space" in values:
            values["space"] = ""  # it is read later, because the task decides some of its fields
        try:
            return SearchConfig(**values)
        except ValidationError as error:
            mistakes = error.errors(include_url=False, include_context=False)
            for item in sorted(mistakes, key=lambda each: each["type"] == "missing"):  # first the keys with a line
                self.invalid(item, SearchConfig)
        sound = {key: value for key, value in values.items() if key not in self.wrong}
        return SearchConfig(**STAND_INS | sound)

    def parts(self, config: SearchConfig) -> SearchConfig:
        """Read what the names stand for, and check that the parts fit each other. A study then needs no other file."""
        config = self.attempt(("blocks",), lambda: self.blocks(config)) or config.model_copy(update={"blocks": {}})
        task = self.attempt(self.named("task", config.task), lambda: factory.gather_task(config, self.folder))
        config = task or config
        space = self.attempt(("space",), lambda: self.space(config)) or Space.parse(STAND_IN_SPACE)
        if "space" not in self.wrong:
            config = config.model_copy(update={"space": space.text()})
            factory.parts(config).space = space
        self.objectives(config)
        self.attempt(self.named("strategy", config.strategy), lambda: factory.strategy(config, space))
        for name, arm in config.arms.items():
            self.attempt(("arms", name, "strategy"), partial(factory.strategy, config, space, arm.strategy))
        self.attempt(("space",), lambda: checks.check_space(space, factory.prepared_task(config)), needs="task")
        ranks = "objectives" not in self.wrong
        self.attempt(self.named("scheduler", config.scheduler), lambda: checks.check_scheduler(config, ranks=ranks))
        self.attempt(self.named("runner", config.runner), lambda: factory.runner_options(config))
        recipe = self.attempt(("recipe",), lambda: Recipe.read(config.recipe)) or Recipe()
        self.attempt(("recipe", "criterion"), lambda: recipe.check(factory.task(config)), needs="task")
        self.attempt(("storage",), lambda: parse_url(config.storage))
        self.attempt(("device",), lambda: checks.check_device(config.device))
        found = [
            self.attempt(("baselines", index), partial(self.baseline, config, name), needs="task")
            for index, name in enumerate(config.baselines)
        ]
        config = config.model_copy(update={"baselines": tuple(text for text in found if text)})
        return self.finals(self.arms(config))

    def arms(self, config: SearchConfig) -> SearchConfig:
        """Read the files of the architectures made by hand."""
        changed = {}
        for name, arm in config.arms.items():
            found = [
                self.attempt(("arms", name, "architectures", index), partial(self.baseline, config, each), needs="task")
                for index, each in enumerate(arm.architectures)
            ]
            for index, text in enumerate(found):
                if text and (first := found.index(text)) < index:
                    self.problem(
                        f"is the same architecture as number {first + 1}", ("arms", name, "architectures", index)
                    )
            changed[name] = arm.model_copy(update={"architectures": tuple(text for text in found if text)})
        return config.model_copy(update={"arms": changed})

    def blocks(self, config: SearchConfig) -> SearchConfig:
        """Read and run the files of the user's own blocks."""
        found = config.model_copy(update={"blocks": blocks.read(config.blocks, self.folder)})
        blocks.load(found.blocks)
        return found

    def finals(self, config: SearchConfig) -> SearchConfig:
        """Read the files of the baselines of the finals, and check the options to try."""
        if "scheduler" not in self.wrong:  # it says how many steps the runs have
            self.attempt(("finals", "tune"), lambda: checks.check_tries(config), needs="recipe")
            self.attempt(
                ("finals", "tune"), lambda: checks.check_tried_criteria(config, factory.task(config)), needs="task"
            )
            self.attempt(("finals", "winner_steps"), lambda: checks.check_winner_steps(config))
        self.attempt(("finals", "match"), lambda: checks.check_match(config), needs="objectives")
        if config.finals.baselines is None:
            return config
        found = [
            self.attempt(("finals", "baselines", index), partial(self.final_baseline, config, each), needs="task")
            for index, each in enumerate(config.finals.baselines)
        ]
        given = {"baselines": tuple(each for each in found if each)}
        return config.model_copy(update={"finals": config.finals.model_copy(update=given)})

    def space(self, config: SearchConfig) -> Space:
        """The space, from the file that is named or from the tree in the search file itself.

        Fields that it leaves out and the task decides are filled in.
        """
        written = self.document.data["space"]
        given, length, segments = BYTES, None, 1
        if "task" not in self.wrong:
            task = factory.prepared_task(config)
            given, length, segments = decided(task), factory.shape(config).length, task.segments
        if isinstance(written, str):
            found = _space_file(self.folder / written, given)
        else:
            found = language.from_data(self.document, ("space",), given)
        return Space(found.root, found.constraints, length, length and length * segments, completed=True)

    def objectives(self, config: SearchConfig) -> None:
        """Check that each objective exists, that the task reports its metric, and that no two are the same."""
        names: list[str] = []
        built: list[Objective] = []
        shape = Shape() if "task" in self.wrong else factory.shape(config)
        for index, written in enumerate(config.objectives):
            path = ("objectives", index)
            if "device" in written.options:
                self.attempt(path, partial(checks.check_device, written.options["device"]))
            made = self.attempt(path, partial(objectives.make, written.written(), shape))
            if made is None:
                continue
            built.append(made)
            names.append(made.name)
            self.attempt(path, partial(self.objective, config, made), needs="task")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            self.problem(f"every objective counts once, but there is more than one {', '.join(twice)}", ("objectives",))
        if not {"objectives", "finals"} & self.wrong:
            self.attempt(("objectives", 0), lambda: checks.check_finals(config, built))
        if "objectives" not in self.wrong:
            factory.parts(config).objectives = built

    def objective(self, config: SearchConfig, made: Objective) -> None:
        checks.check_objective(made, factory.task(config), Path(config.task.name).name)

    def baseline(self, config: SearchConfig, name: str) -> str:
        return checks.find_baseline(name, self.folder, factory.prepared_task(config)).text()

    def final_baseline(self, config: SearchConfig, given: str | GivenBaseline) -> str | GivenBaseline:
        if isinstance(given, GivenBaseline):
            return given
        return checks.find_final_baseline(given, self.folder, factory.prepared_task(config), kind(config))

    def named(self, part: str, written: Named) -> documents.Path_:
        """The path of the name of a part, with options or without."""
        return (part, written.name) if isinstance(self.document.data.get(part), dict) else (part,)

    def attempt(
        self, path: documents.Path_, action: Callable[[], T], needs: str = "", model: type[BaseModel] = SearchConfig
    ) -> T | None:
        """The result of `action`; None if it fails, which is noted as a problem of `path`.

        It is not called, and None is returned, if `path` or the key that it `needs` is wrong already. `model` is what
        pydantic reads in `action`.
        """
        if path[0] in self.wrong - {"objectives", "baselines"} or needs in self.wrong:
            return None
        try:
            return action()
        except ValidationError as error:
            for item in error.errors(include_url=False, include_context=False):
                self.invalid(item, model, path)
        except SpaceError as error:
            self.wrong.add(str(path[0]))
            self.problems += [self.placed(each, path) for each in error.problems]
        except (NasError, ValueError) as error:
            self.problem(str(error).removeprefix(f"{path[0]}: "), path)
        return None

    def placed(self, problem: Problem, path: documents.Path_) -> Problem:
        """`problem`, at `path` if it has no place of its own."""
        if problem.mark is not None:
            return problem
        return Problem(problem.message, self.document.mark(path), problem.path or documents.path_text(path))

    def invalid(self, item: Any, model: type[BaseModel], above: documents.Path_ = ()) -> None:
        """Note one of pydantic's errors: the line, the path, what was found, what was expected."""
        path = (*above, *(part for part in item["loc"] if not str(part).startswith("function-")))
        if item["type"] == "missing":
            self.problem(f"{path[-1]!r} is missing", path)
        elif item["type"] == "extra_forbidden":
            known = _fields_at(model, item["loc"])
            near = (elsewhere(str(path[0]), TOP) if len(path) == 1 else "") or nearest(str(path[-1]), known)
            listed = f"Known: {', '.join(known)}." if known else "There are no options."
            self.problem(f"there is no {path[-1]!r} here.{near} {listed}", path)
        else:
            message = plain_message(item["msg"])
            found = "" if " found " in message else f", but found {_short(item['input'])}"
            self.problem(f"{message[0].lower()}{message[1:]}{found}", path)


def _holes(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The paths of tags below `value`."""
    if isinstance(value, documents.Tagged):
        yield path
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _holes(item, (*path, key))


def _short(value: Any) -> str:
    text = repr(value[:100] if isinstance(value, str | list) else value)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields_at(model: Any, location: tuple[Any, ...]) -> list[str]:
    """The valid keys at the end of `location`."""
    for part in location[:-1]:
        field = model.model_fields.get(part)
        annotation = field.annotation if field else Named
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Named
    return sorted((KEYS if model is SearchConfig else set(model.model_fields)) - set(HIDDEN))
