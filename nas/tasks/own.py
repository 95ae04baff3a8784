"""The user's own task: a class from the text of a Python file, on machines that have only that text."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path

from nas.errors import UsageError
from nas.own import source as own_source
from nas.tasks.contract import Task

OWN = ".py"  # the ending of a task's name that is a file of the user


class TaskProblem(UsageError):
    """The task cannot be used as written: its name, an option, its file or its data."""


def read(path: Path) -> str:
    """The text of the user's file. Raises TaskProblem if it cannot be read."""
    try:
        return own_source.read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskProblem(f"The task file {path} cannot be read: {error}.") from error


@cache
def own_class(path: str, source: str) -> type[Task]:
    """The one subclass of Task that the text `source` defines. Tracebacks of errors in it show the lines of `path`.

    Raises TaskProblem unless the file defines exactly one complete task, and any exception that the file raises.
    """
    module = own_source.run(own_source.module_name("task", path + source), path, source)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Task) and value.__module__ == module.__name__
    ]
    complete = [cls for cls in found if not _lacks(cls)]
    if len(complete) != 1:
        have = ", ".join(cls.__name__ for cls in complete) or "none"
        missing = "".join(f" {cls.__name__} lacks {', '.join(_lacks(cls))}." for cls in found if _lacks(cls))
        raise TaskProblem(f"{path} must define one complete subclass of nas.tasks.Task, but has: {have}.{missing}")
    return complete[0]


def _lacks(cls: type[Task]) -> list[str]:
    """The methods that a task must define and `cls` does not."""
    lacking = set(cls.__abstractmethods__) if inspect.isabstract(cls) else set()
    if cls.loss is Task.loss and cls.outputs is Task.outputs:
        lacking.add("loss")
    return sorted(lacking)
