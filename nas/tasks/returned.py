"""Which metrics a task returns, before anything is trained: those that it declares, or those of one dry evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import torch

from nas.documents import Evaluation
from nas.metrics import name_problem
from nas.tasks.contract import Metric, Task
from nas.tasks.fields import decided
from nas.tasks.own import TaskProblem
from searchspace.language import language
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

MOST_LOGITS = 2**25  # values of one batch, about 130 MB: a larger vocabulary is left to the workers
TINY = {  # a small model of each kind, without the fields that the task decides
    "decoder": "{kind: decoder, width: 8, body: []}",
    "encoder": "{kind: encoder, width: 8, body: []}",
    "encoder_decoder": "{kind: encoder_decoder, width: 8, encoder: [], decoder: {attention: {over: memory}}}",
}


def check_declared(task: Task) -> None:
    """Raise TaskProblem unless `reports` is None or a tuple of metrics, each with another name."""
    declared: Any = task.reports
    if declared is None:
        return
    kind = type(task).__name__
    listed = isinstance(declared, tuple | list)
    if not listed or not all(isinstance(each, Metric) for each in declared):
        raise TaskProblem(
            f"The task {kind}: `reports` must be a tuple of metrics, but is {declared!r}. Write it as in "
            'reports = (Metric("error"),), with Metric from nas.tasks.'
        )
    names = [each.name for each in declared]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TaskProblem(f"The task {kind}: `reports` declares {', '.join(map(repr, twice))} more than once.")


def returned(task: Task) -> tuple[str, ...] | None:
    """The names of the metrics that `task`, which is prepared, returns for one batch and a tiny model.

    None if the evaluation fails with that model, or would take much memory: then the first unit shows them. Raises
    TaskProblem for a name that no metric may have.
    """
    try:
        found = _evaluated(task)
    except (Exception, SystemExit):
        return None
    if not isinstance(found, Mapping):
        return None
    for name in found:
        if problem := name_problem(name):
            raise TaskProblem(f"The task {type(task).__name__}: {problem}")
    return tuple(found)


def _evaluated(task: Task) -> Any:
    required = task.requires()
    width = max(int(required.get(name) or 1) for name in ("vocabulary", "classes"))
    if task.shape.rows * width > MOST_LOGITS:
        return None
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        model = build(_tiny(task)).eval()
        found: Any = task.evaluate(model, islice(task.held_out("validation"), 1))
    return found.metrics if isinstance(found, Evaluation) else None


def _tiny(task: Task) -> Architecture:
    text = TINY[str(task.requires()["kind"])]
    return Architecture.from_block(language.parse(text, given=decided(task)).root)
