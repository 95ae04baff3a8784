"""Train one architecture without a search, as `nas train ARCH.yaml` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nas import tasks
from nas.tasks.fields import fitted, suited
from nas.tasks.registry import Spec
from nas.training.loop import Report
from nas.training.recipe import Recipe
from nas.training.unit import run
from nas.work import Outcome, Work
from searchspace.model.architecture import Architecture

EVALUATED = 1_024  # positions of a text, for a check that an architecture trains


def train(
    architecture: str,
    task: Spec,
    recipe: Mapping[str, Any] | None = None,
    *,
    steps: int,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    cache: Path | None = None,
    out: str | Path | None = None,
    progress: Report | None = None,
) -> Outcome:
    """Train `architecture`, a text in YAML, for `steps`; write a checkpoint to the folder or URL `out`.

    Paths in `task` are relative to the current folder. Raises UsageError for an invalid recipe or task; later errors
    are the `failure` of the outcome.
    """
    recipe = dict(recipe or {})
    spec, source = tasks.ship(task, Path.cwd())
    Recipe.read(recipe).check(tasks.loaded(spec, source))
    work = Work(
        study="train",
        trial=0,
        rung=0,
        architecture=architecture,
        task=spec,
        recipe=recipe,
        steps=steps,
        horizon=steps,
        seed=seed,
        checkpoint=None if out is None else str(out),
        threads=threads or torch.get_num_threads(),
        device=device,
        cache=None if cache is None else str(cache),
        task_source=source,
    )
    return run(work, progress)


@dataclass(frozen=True)
class Trained:
    """The name of the task that was used, and the outcome."""

    task: str
    outcome: Outcome


def train_suited(architecture: Architecture, **options: Any) -> Trained:
    """Train `architecture` for a short check on the task that suits its kind, with its vocabulary or classes.

    A text task evaluates only a few positions. `options` are those of `train`. Raises ValueError if no task suits it.
    """
    name = suited(architecture)
    task = tasks.load(name)
    task.prepare(None)
    spec: Spec = {name: {"evaluation": EVALUATED}} if "evaluation" in task.settled else name
    return Trained(name, train(fitted(architecture, task).text(), spec, **options))
