"""What to train on. Each task is one file, found by itself."""

from nas.tasks.contract import Task
from nas.tasks.registry import TaskProblem, check, load, names, ship

__all__ = ["Task", "TaskProblem", "check", "load", "names", "ship"]
