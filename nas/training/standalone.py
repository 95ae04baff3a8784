"""Train one architecture without a search, as `nas train ARCH.yaml` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nas import tasks
from nas.tasks.registry import Spec
from nas.training.loop import Report
from nas.training.recipe import Recipe
from nas.training.unit import run
from nas.work import Outcome, Work


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
