"""Finds an architecture for a task, and fills in the fields that the task decides, such as `vocabulary`."""

from __future__ import annotations

from pathlib import Path

from nas import architectures
from nas.files import is_file
from nas.tasks.contract import Task
from nas.tasks.fields import decided, fitted
from searchspace.model.architecture import Architecture


def find(reference: str, task: Task, *, folder: Path | None = None, storage: str | None = None) -> Architecture:
    """The architecture that `nas.architectures.find` finds, completed for `task`, which is prepared.

    A file gets the fields that it leaves out. A model of the zoo gets all of them, if it is of the kind that the task
    needs. The architecture may still not fit the task (`nas.tasks.check`). folder: to which the name of a file is
    relative; None is the current folder. Raises UsageError if there is no such architecture, SpaceError for a file that
    holds none and for a model of the zoo that the task cannot use.
    """
    file = Path(reference) if folder is None else folder / reference
    if is_file(file):
        return architectures.of_file(file, decided(task))
    found = architectures.find(reference, storage, folder=folder)
    if not architectures.in_zoo(reference) or found.root.name != task.requires().get("kind"):
        return found
    return Architecture.parse(fitted(found, task).text(), reference)  # read again: another field may exclude a new one
