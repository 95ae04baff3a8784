"""The sequence length for the costs of a study: the length of its task."""

from __future__ import annotations

from typing import Any

from dashboards.explorer.process import Unavailable, Worker
from dashboards.server.sources import StudyCache

USUAL = 1024  # positions, if there is no task
UNKNOWN = f"The length of the task of this study is unknown, so costs are for {USUAL:,} positions."


def task_length(study: StudyCache, worker: Worker) -> int | None:
    """The length of the task; None if only the user's own code knows it. Raises Unavailable without torch."""
    config: Any = study.study.config if isinstance(study.study.config, dict) else {}
    task = config.get("task") if isinstance(config.get("task"), dict) else {}
    name, options = str(task.get("name", "")), task.get("options")
    options = options if isinstance(options, dict) else {}
    if config.get("task_source") is None and name:
        return worker.ask(action="length", task=name, options=options).get("length")
    read, batch, named = config.get("step_tokens"), options.get("batch"), options.get("length")
    if isinstance(read, int) and isinstance(batch, int) and batch > 0:
        return read // batch  # positions of a step / sequences of a step
    return named if isinstance(named, int) and named > 0 else None


def length_or_usual(study: StudyCache, worker: Worker) -> tuple[int, str]:
    """(length, a remark if it is a guess)."""
    try:
        found = task_length(study, worker)
    except Unavailable:  # no costs are computed then
        return USUAL, ""
    return (USUAL, UNKNOWN) if found is None else (found, "")
