"""Every task by name, found by itself, and the user's own, loaded from the text of its file.

A task is written `language_model`, `{language_model: {length: 64}}`, `my_task.py` or `{my_task.py: {option: 1}}`.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import linecache
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import nas.tasks
from nas.errors import UsageError
from nas.tasks.contract import Task
from searchspace.errors import nearest
from searchspace.tree import Block

Spec = str | Mapping[str, Any]

_tasks: dict[str, type[Task]] = {}


class TaskProblem(UsageError):
    """The task cannot be used as written: its name, an option, its file or its data."""


def task(name: str) -> Callable[[type[Task]], type[Task]]:
    """Register a task class under `name`."""

    def register(cls: type[Task]) -> type[Task]:
        _tasks[name] = cls
        return cls

    return register


@cache
def _discover() -> None:
    for module in pkgutil.iter_modules(nas.tasks.__path__, "nas.tasks."):
        importlib.import_module(module.name)


def names() -> list[str]:
    """The names of the tasks that come with the product, sorted."""
    _discover()
    return sorted(_tasks)


def load(spec: Spec, source: str | None = None) -> Task:
    """The task that `spec` describes; `source` is the text of the user's file, read from its path when not given."""
    name, options = _parse(spec)
    cls = _find(name, source)
    known = {p for p, kind in inspect.signature(cls).parameters.items() if kind.kind != kind.VAR_KEYWORD}
    for option in options:
        if option not in known:
            raise TaskProblem(
                f"task {name}: there is no option {option!r}.{nearest(option, known)} "
                f"Known: {', '.join(sorted(known)) or 'none'}."
            )
    if name.endswith(".py"):
        return cls(**options)  # an error in the user's constructor keeps its traceback
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        raise TaskProblem(f"task {name}: {error}") from error


def ship(spec: Spec, folder: Path) -> tuple[dict[str, dict[str, Any]], str | None]:
    """`spec` as another process or machine can use it: {name: options} with absolute paths, and the text of the user's
    file. Relative paths are taken from `folder`, where the search file stands."""
    name, options = _parse(spec)
    if not name.endswith(".py"):
        return {name: _find(name, None).resolve(options, folder)}, None
    path = (folder / name).absolute()
    source = _read(path)
    return {str(path): _find(str(path), source).resolve(options, folder)}, source


def check(task: Task, root: Block) -> None:
    """Raise ValueError unless the architecture with this `root` fits `task`, naming everything that does not."""
    wrong = []
    for field, expected in task.requires().items():
        found = root.name if field == "kind" else root.fields.get(field)
        if found != expected:
            wrong.append(f"{field}: {expected}, but the architecture has {field}: {found}")
    if wrong:
        raise ValueError(f"The task {type(task).__name__} needs {'; '.join(wrong)}.")


def _parse(spec: Spec) -> tuple[str, dict[str, Any]]:
    if isinstance(spec, str):
        return spec, {}
    if isinstance(spec, Mapping) and len(spec) == 1:
        name, options = next(iter(spec.items()))
        if isinstance(name, str) and (options is None or isinstance(options, Mapping)):
            return name, dict(options or {})
    raise TaskProblem(f"A task is a name, a path to a .py file, or one of them with its options, but got {spec!r}.")


def _find(name: str, source: str | None) -> type[Task]:
    if name.endswith(".py"):
        return _own(name, _read(Path(name)) if source is None else source)
    _discover()
    if name not in _tasks:
        known = sorted(_tasks)
        raise TaskProblem(
            f"No task is called {name!r}.{nearest(name, known)} Known: {', '.join(known)}, or a path to a .py file."
        )
    return _tasks[name]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskProblem(f"The task file {path} cannot be read: {error}.") from error


@cache
def _own(path: str, source: str) -> type[Task]:
    """The one subclass of Task that the text `source` defines; an error in it carries lines of `path`."""
    # linecache lets a traceback quote the file on a machine that has only its text; no mtime means it is never dropped.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType(f"nas_own_task_{hashlib.sha256((path + source).encode()).hexdigest()[:16]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up
    exec(compile(source, path, "exec"), module.__dict__)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Task) and value.__module__ == module.__name__
    ]
    concrete = [cls for cls in found if not inspect.isabstract(cls)]
    if len(concrete) != 1:
        have = ", ".join(cls.__name__ for cls in concrete) or "none"
        missing = "".join(f" {cls.__name__} lacks {', '.join(sorted(cls.__abstractmethods__))}." for cls in found)
        raise TaskProblem(f"{path} must define one complete subclass of nas.tasks.Task, but has: {have}.{missing}")
    return concrete[0]
