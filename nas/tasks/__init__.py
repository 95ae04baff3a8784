"""Tasks: what to train on. Each task is one file, found by its name."""

from nas.documents import Documents, Evaluation
from nas.tasks.contract import Metric, Task
from nas.tasks.fields import check
from nas.tasks.registry import TaskProblem, load, load_prepared, loaded, names, ship

__all__ = [
    "Documents",
    "Evaluation",
    "Metric",
    "Task",
    "TaskProblem",
    "check",
    "load",
    "load_prepared",
    "loaded",
    "names",
    "ship",
]
