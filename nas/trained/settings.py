"""The settings of a training: the recorded settings of an architecture, with the user's changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nas import location, tasks
from nas.errors import UsageError
from nas.tasks.contract import Task
from nas.trained.recorded import Recorded
from nas.training.recipe import Recipe, replaced
from searchspace.model.architecture import Architecture

STEPS = 300  # of a training whose length is not recorded
TASK = "language_model"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. task: {name: options} with absolute paths; source: the text of the user's own task file.

    points: the steps at which to evaluate; the last one ends the training.
    """

    task: Mapping[str, Any]
    source: str | None
    recipe: Mapping[str, Any]
    steps: int
    horizon: int
    seed: int
    device: str
    threads: int
    points: tuple[int, ...] = field(default=())

    def lines(self) -> list[str]:
        """One line for each setting, to print before the training."""
        (name, options), *_ = self.task.items()
        listed = ", ".join(f"{key}: {value}" for key, value in options.items()) or "its defaults"
        recipe = ", ".join(f"{key}: {value}" for key, value in self.recipe.items()) or "the defaults"
        at = f", learning rate down at step {self.horizon}" if self.horizon != self.steps else ""
        return [
            f"task: {name} ({listed})",
            f"recipe: {recipe}",
            f"steps: {self.steps}{at}, seed: {self.seed}, device: {self.device}, threads: {self.threads}",
        ]


def settings(
    record: Recorded,
    *,
    task: str | None = None,
    options: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    steps: int | None = None,
    every: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    threads: int | None = None,
) -> Settings:
    """The settings of `record`, with everything that is given in their place.

    options: of the task. recipe: replaces the recorded one. changes: options of the recipe that replace others. every:
    the steps between two evaluations; None evaluates where the search did. Raises UsageError for a bad task or recipe.
    """
    spec, source = _task(record, task, dict(options or {}))
    chosen = replaced(dict(record.recipe) if recipe is None else recipe, changes or {})
    Recipe.read(chosen).check(tasks.loaded(spec, source))
    last = steps or record.steps or STEPS
    horizon = max(last, record.horizon or last)
    between = range(every, last, every) if every else [each for each in record.rungs if each < last]
    return Settings(
        task=spec,
        source=source,
        recipe=chosen,
        steps=last,
        horizon=horizon,
        seed=record.seed if seed is None else seed,
        device=device or record.device,
        threads=threads or record.threads,
        points=(*between, last),
    )


def continued(record: Recorded, training: Recorded) -> Recorded:
    """`record` with the task, the recipe, the length and the seed of the `training` that is continued."""
    names = ("task", "task_source", "recipe", "steps", "horizon", "seed", "data_sha256")
    return replace(record, **{name: getattr(training, name) for name in names})


def prepared(record: Recorded | None, name: str | None, options: Mapping[str, Any]) -> Task:
    """The task that `settings` chooses, with its data read. Raises UsageError if it cannot be used."""
    return tasks.load_prepared(*_task(record, name, dict(options)), location.CACHE)


def check_fits(architecture: Architecture, task: Task) -> None:
    """Raise UsageError if `architecture` does not fit `task`."""
    try:
        tasks.check(task, architecture.root)
    except ValueError as error:
        raise UsageError(f"{error} A file may leave these fields out, except kind: the task decides them.") from None


def _task(record: Recorded | None, name: str | None, options: dict[str, Any]) -> tuple[Mapping[str, Any], str | None]:
    """The task as a worker reads it. Options of the record are kept if the task is the same."""
    if record is None or record.task is None or name not in (None, *record.task):
        return tasks.ship({name or TASK: options}, Path.cwd())
    (known, recorded), *_ = record.task.items()
    merged = {**recorded, **options}
    if record.task_source is not None:
        return {known: merged}, record.task_source
    return tasks.ship({known: merged}, Path.cwd())


def data_changed(record: Recorded, chosen: Settings) -> bool:
    """Whether the recorded task has other data today than when they were recorded."""
    (name, _), *_ = chosen.task.items()
    if not record.data_sha256 or record.task is None or chosen.task != {name: dict(record.task.get(name) or {})}:
        return False
    return tasks.load_prepared(chosen.task, chosen.source, location.CACHE).data_hash != record.data_sha256


def read_recipe(path: Path) -> dict[str, Any]:
    """The recipe in a YAML file: its options, or a search file with a `recipe`. Raises UsageError if it has none."""
    from searchspace.errors import SpaceError
    from searchspace.language import documents, language

    try:
        found = documents.load(str(path), tags=language.TAGS).data
    except SpaceError as error:
        raise UsageError(f"{path}: the recipe cannot be read: {error}") from None
    if isinstance(found, Mapping) and "space" in found:
        found = found.get("recipe", {})
    elif isinstance(found, Mapping) and set(found) == {"recipe"}:
        found = found["recipe"]
    if not isinstance(found, Mapping):
        raise UsageError(f"{path}: a recipe is a mapping such as `learning_rate: 3e-3`, but got {found!r}.")
    return dict(found)
