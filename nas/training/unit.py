"""One unit of work from beginning to end: task, model, training, evaluation, checkpoint.

A failure of the unit is part of its outcome. What `run` does raise is no fault of the architecture: a checkpoint that
cannot be written (NasError), or an interrupt.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas import tasks
from nas.tasks.contract import Batch, Split, Task
from nas.training import checkpoints
from nas.training.checkpoints import CheckpointLost
from nas.training.determinism import deterministic
from nas.training.failures import Phase, failure
from nas.training.loop import Deadline, NotFinite, Report, Training, place
from nas.training.recipe import Recipe
from nas.work import Outcome, Work
from searchspace.architecture import Architecture
from searchspace.build import build
from searchspace.contract import Context

log = logging.getLogger(__name__)


def run(work: Work, progress: Report | None = None) -> Outcome:
    """Train and evaluate `work`; `progress` hears about once a second where it is."""
    began = time.monotonic()
    unit = Unit(work, progress)
    with deterministic(work.seed, work.threads):
        try:
            unit.execute()
        except Exception as error:
            if unit.writing:
                raise
            unit.result["failure"] = failure(error, unit.phase, unit.task_file)
    return Outcome(
        trial=work.trial, rung=work.rung, seconds=time.monotonic() - began, device=work.device, **unit.result
    )


@dataclass
class Unit:
    """A unit on its way; `result` holds what is known of its outcome so far."""

    work: Work
    progress: Report | None
    phase: Phase = Phase.TASK
    task_file: str = ""
    writing: bool = False
    result: dict[str, Any] = field(default_factory=dict)

    def execute(self) -> None:
        work = self.work
        task = self._task()
        self.phase = Phase.BUILD
        device = torch.device(work.device)
        training = self._training(task, device)
        restarted = not self._resume(training)
        self.phase = Phase.TRAIN
        deadline = Deadline(work.seconds)
        start, began = training.step, time.monotonic()
        curve = training.run(work.steps, deadline, self.progress)
        seconds = time.monotonic() - began
        metrics = evaluate(training, "validation", deadline)
        if work.steps >= work.horizon:
            test = evaluate(training, "test", deadline)
            metrics |= {f"test_{name}": value for name, value in test.items() if name in metrics}
        if curve:
            metrics["train_loss"] = curve[-1][1]
            metrics["tokens_per_second"] = (work.steps - start) * task.shape.rows / seconds
        if restarted:
            metrics["restarted"] = 1.0
        metrics["steps"] = float(work.steps)
        self.result.update(metrics=metrics, curve=tuple(curve))
        if work.checkpoint is not None:
            self.writing = True
            name = f"trial-{work.trial:06d}-rung-{work.rung}"
            self.result["checkpoint"] = checkpoints.write(training.state(), work.checkpoint, name)

    def _task(self) -> Task:
        self.task_file = next(iter(self.work.task))
        task = tasks.load(self.work.task, self.work.task_source)
        self.task_file = inspect.getfile(type(task))
        task.prepare(None if self.work.cache is None else Path(self.work.cache))
        return task

    def _training(self, task: Task, device: torch.device) -> Training:
        work = self.work
        recipe = Recipe.read(work.recipe)
        architecture = Architecture.parse(work.architecture)
        tasks.check(task, architecture.root)
        model = build(architecture).to(device)
        return Training(model, task, recipe, work.horizon, work.seed, device)

    def _resume(self, training: Training) -> bool:
        """Take up the unit's checkpoint, if it has one; False when it is lost and the unit starts from scratch."""
        start = self.work.start
        if start is None:
            return True
        fresh = {name: value.clone() for name, value in training.model.state_dict().items()}
        try:
            state = checkpoints.read(start, training.device)
            if state["step"] > self.work.steps:
                raise CheckpointLost(
                    f"The checkpoint {start.uri} is of step {state['step']}, beyond {self.work.steps}."
                )
            training.restore(state)
        except (CheckpointLost, RuntimeError, KeyError, ValueError) as error:
            log.warning("Trial %d starts from scratch: %s", self.work.trial, error)
            training.model.load_state_dict(fresh)
            training.__post_init__()
            training.step = 0
            return False
        return True


def evaluate(training: Training, split: Split, deadline: Deadline) -> dict[str, float]:
    """The task's metrics on held-out data, and the mean of what the blocks report, such as `halting_steps`."""
    model, sums = training.model, Statistics()
    hook = model.register_forward_hook(sums, with_kwargs=True)
    model.eval()
    try:
        with torch.inference_mode(), training.autocast():
            metrics = training.task.metrics(model, _placed(training, split, deadline))
    finally:
        hook.remove()
    metrics = {name: float(value) for name, value in metrics.items()}
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise NotFinite(f"The {split} metric {name} is {value} after step {training.step}.")
    return sums.means() | metrics


def _placed(training: Training, split: Split, deadline: Deadline) -> Iterator[Batch]:
    for batch in training.task.held_out(split):
        deadline.check(f"while evaluating after step {training.step}")
        yield place(batch, training.device)


class Statistics:
    """A forward hook that gathers what the blocks wrote into the context of each call."""

    def __init__(self) -> None:
        self.totals: dict[str, list[float]] = {}

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Context):
                for name, reported in value.statistics.items():
                    self.totals.setdefault(name, []).extend(float(number) for number in reported)

    def means(self) -> dict[str, float]:
        return {name: sum(values) / len(values) for name, values in self.totals.items()}
