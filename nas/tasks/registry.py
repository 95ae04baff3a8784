"""The registry of tasks, and the loader of a task by its name or by the text of the user's own file.

A task is written `language_model`, `{language_model: {length: 64}}`, `my_task.py` or `{my_task.py: {option: 1}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nas.errors import UsageError
from nas.registry import Registry, Thing, checked, completed
from nas.tasks.contract import Task
from nas.tasks.own import OWN, TaskProblem, own_class, read

Spec = str | Mapping[str, Any]
KEPT = 2  # tasks of a process, with their data

registry = Registry("task", "nas.tasks")


def task(name: str) -> Callable[[Thing], Thing]:
    """Register a task class as `name`; the parameters of its constructor are its options."""
    return registry.register(name)


def names() -> list[str]:
    """The names of the tasks that come with the product, sorted."""
    return registry.names()


def load(spec: Spec, source: str | None = None) -> Task:
    """The task that `spec` describes, not yet prepared. `source` is the text of the user's file; None reads its path.

    Raises TaskProblem for an unknown name, an invalid option, or a file that cannot be read. An error in the user's own
    constructor keeps its traceback.
    """
    name, options = _parse(spec)
    cls = _find(name, source)
    try:
        if name.endswith(OWN):
            values = checked(cls, options, f"task {name!r}")
        else:
            return registry.make(name, {}, options)
    except UsageError as error:
        raise TaskProblem(str(error)) from error
    return cls(**values)


def complete(spec: Spec, source: str | None = None, known: Mapping[str, Any] = {}) -> dict[str, dict[str, Any]]:
    """`spec` with every option, as {name: options}: those of `known` where it leaves them out, else the defaults."""
    name, options = _parse(spec)
    return {name: completed(_find(name, source), options, known)}


def loaded(spec: Spec, source: str | None = None) -> Task:
    """As `load`, but the same task for the same options and `source` in this process."""
    return _loaded(_key(spec, source), source)


def load_prepared(spec: Spec, source: str | None, cache: Path | None) -> Task:
    """The task with its data read, once in this process. Raises as `load`, and what `prepare` raises."""
    return _prepared(_key(spec, source), source, cache)


def _key(spec: Spec, source: str | None) -> str:
    """The same text for all ways to write a task."""
    return json.dumps(complete(spec, source), sort_keys=True)


@lru_cache(maxsize=KEPT)
def _loaded(spec: str, source: str | None) -> Task:
    return load(json.loads(spec), source)


@lru_cache(maxsize=KEPT)
def _prepared(spec: str, source: str | None, cache: Path | None) -> Task:
    made = _loaded(spec, source)
    made.prepare(cache)
    return made


def ship(spec: Spec, folder: Path) -> tuple[dict[str, dict[str, Any]], str | None]:
    """`spec` as another process or machine can use it: {name: options} with absolute paths, and the text of the user's
    file. Relative paths are relative to `folder`, the folder of the search file.

    Raises TaskProblem for an unknown name, an invalid option of a task that comes with the product, or a file that
    cannot be read.
    """
    name, options = _parse(spec)
    if not name.endswith(OWN):
        shipped = _find(name, None)
        try:
            registry.check(name, options)
        except UsageError as error:
            raise TaskProblem(str(error)) from error
        return {name: shipped.resolve(options, folder)}, None
    path = (folder / name).absolute()
    source = read(path)
    return {str(path): _find(str(path), source).resolve(options, folder)}, source


def _parse(spec: Spec) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and len(spec) == 1:
        name, options = next(iter(spec.items()))
        if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
            return name, dict(options or {})
    raise TaskProblem(f"A task is a name, a path to a .py file, or one of them with its options, but got {spec!r}.")


def _find(name: str, source: str | None) -> type[Task]:
    if name.endswith(OWN):
        return own_class(name, read(Path(name)) if source is None else source)
    try:
        return registry.find(name)
    except UsageError as error:
        raise TaskProblem(f"{error} Or name a .py file with a task of your own.") from error
