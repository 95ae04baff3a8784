"""One unit of work from beginning to end: task, model, training, evaluation, checkpoint.

A failure of the unit is part of its outcome. `run` raises only errors that are not the fault of the architecture: a
checkpoint that cannot be written, a place of checkpoints that does not answer, a device that does not exist (all three
NasError), or an interrupt.
"""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nas import metrics as names
from nas import tasks
from nas.documents import Documents, Evaluation
from nas.errors import Unreachable, UsageError
from nas.own import blocks
from nas.tasks.contract import Batch, Split, Task, reported
from nas.training import checkpoints, partial
from nas.training.checkpoints import CheckpointLost
from nas.training.determinism import deterministic, set_seed
from nas.training.failures import Phase, failure
from nas.training.loop import Deadline, NotFinite, Report, Training, WrongReturn, place
from nas.training.probe import scores
from nas.training.recipe import Recipe
from nas.work import Outcome, Work
from searchspace.contract import Context
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

log = logging.getLogger(__name__)

SAME = 1e-4  # relative difference between a metric and its documents together: the task may have added in float32


def run(work: Work, progress: Report | None = None, started: Callable[[], None] = lambda: None) -> Outcome:
    """Train and evaluate `work`, or score its untrained model if it is a probe; call `progress` about once a second.

    started: called when the data has been read, and again when the time limit of the unit starts.

    If KeyboardInterrupt is raised, the unit saves its state next to its checkpoints, and the next run of the same unit
    continues from there. Raises NasError if the device does not exist, a checkpoint cannot be written, or their place
    does not answer.
    """
    return _outcome(Unit(work, progress, started, device_here(work.device)))


def warm_up(work: Work) -> Outcome:
    """As `run` without an evaluation and a checkpoint: what a process does once is done, so later units take as long as
    each other. Raises what `run` raises.
    """
    return _outcome(Unit(replace(work, checkpoint=None), None, lambda: None, device_here(work.device), evaluates=False))


def _outcome(unit: Unit) -> Outcome:
    began, work = time.monotonic(), unit.work
    with deterministic(work.threads, unit.device):
        try:
            training = unit.run()
        except (KeyboardInterrupt, Unreachable):
            raise
        except BaseException as error:  # SystemExit and the like too
            unit.result = {"failure": failure(error, unit.phase, unit.task_file)}
            partial.clear(work)
        else:
            if training is not None and work.checkpoint is not None:
                kind, number = work.name.split(" ")
                name = f"{kind}-{number:0>6}-rung-{work.rung}"
                unit.result["checkpoint"] = checkpoints.write(training.state(), work.checkpoint, name)
                partial.clear(work)
    seconds = time.monotonic() - began
    made_by: dict[str, Any] = {"trial": work.trial, "rung": work.rung, "kind": work.kind, "device": work.device}
    return Outcome(seconds=seconds, **made_by, **unit.result)


def _save(training: Training, work: Work) -> None:
    """Save the state of an interrupted unit. If that fails, as on a full disk, it continues from an earlier state."""
    try:
        if training.stepping:  # some weights may be changed already
            raise ValueError("its step takes too long to wait for its end")
        partial.save(training, work)
    except Exception as error:
        log.warning("Could not save %s, so it goes on from an earlier state: %s", work.name, error)


def device_here(name: str) -> torch.device:
    """The device `name` of this machine. Raises UsageError if it has none."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"There is no device {name!r}; devices are written cpu, cuda or cuda:0.") from error
    if device.type == "cuda":  # only counted: to use it here would start CUDA in a process that may be forked
        if (device.index or 0) >= torch.cuda.device_count():
            raise UsageError(f"This machine has no device {name!r}: it has {torch.cuda.device_count()} CUDA devices.")
        return device
    try:
        torch.zeros(1, device=device).item()
    except Exception as error:  # each kind of device has its own; `meta` has no values
        raise UsageError(f"This machine cannot train on a device {name!r}; `nas doctor` names those it has.") from error
    return device


@dataclass
class Unit:
    """A running unit: its phase, and its outcome so far."""

    work: Work
    progress: Report | None
    clock: Callable[[], None]  # see `run`
    device: torch.device
    evaluates: bool = True
    phase: Phase = Phase.TASK
    task_file: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Training | None:
        """Train, and return the training; or score the untrained model."""
        if self.work.kind == "train":
            return self.train()
        self.probe()
        return None

    def train(self) -> Training:
        """Train from where the unit starts, and evaluate; any exception is a failure of the unit."""
        work = self.work
        task = self._task()
        self.phase = Phase.BUILD
        self.clock()
        training, restarted = self._started(task)
        self.phase = Phase.TRAIN
        deadline = Deadline(work.seconds)
        self.clock()
        start, began = training.step, time.monotonic()
        try:
            curve = training.run(work.steps, deadline, self.progress)
        except KeyboardInterrupt:
            _save(training, work)
            raise
        seconds = time.monotonic() - began
        if not self.evaluates:
            return training
        found = evaluate(training, "validation", deadline, work.evaluated)
        metrics, documents = dict(found.metrics), {}
        if work.steps >= work.horizon:
            every = {"validation": found.scored_in(work.metric)}
            if work.tested:
                test = evaluate(training, "test", deadline, work.evaluated)
                metrics |= {names.on_test(name): value for name, value in test.metrics.items()}
                every["test"] = test.scored_in(work.metric)
            documents = {split: each for split, each in every.items() if each is not None}
        if curve:
            metrics[names.of_run("train_loss")] = curve[-1][1]
            metrics[names.of_run("tokens_per_second")] = (work.steps - start) * task.shape.rows / seconds
        if restarted:
            metrics[names.of_run("restarted")] = 1.0
        metrics[names.of_run("steps")] = float(work.steps)
        self.result = {"metrics": metrics, "documents": documents, "curve": tuple(curve)}
        return training

    def probe(self) -> None:
        """Score the untrained model; any exception is a failure of the unit."""
        task = self._task()
        self.phase = Phase.BUILD
        self.clock()
        model = self._model(task)
        self.phase = Phase.PROBE
        deadline = Deadline(self.work.seconds)
        self.clock()
        architecture = Architecture.parse(self.work.architecture)
        found, evidence = scores(self.work.probes, architecture, model, task, self.work.seed, self.device, deadline)
        self.result = {"metrics": found, "evidence": evidence}

    def _task(self) -> Task:
        self.task_file = next(iter(self.work.task))
        task = tasks.loaded(self.work.task, self.work.task_source)
        self.task_file = inspect.getfile(type(task))
        cache = None if self.work.cache is None else Path(self.work.cache)
        return tasks.load_prepared(self.work.task, self.work.task_source, cache)

    def _started(self, task: Task) -> tuple[Training, bool]:
        """The training at the unit's checkpoint, or from scratch -> it, and whether its checkpoint was lost."""
        training = self._fresh(task)
        start = partial.find(self.work) or self.work.start
        if start is None:
            return training, False
        try:
            state = checkpoints.read(start, self.device)
            if state["step"] > self.work.steps:
                raise CheckpointLost(
                    f"The checkpoint {start.uri} is of step {state['step']}, beyond {self.work.steps}."
                )
            training.restore(state)
        except (CheckpointLost, RuntimeError, KeyError, ValueError) as error:  # the last three: another model's state
            log.warning("%s starts from scratch: %s", self.work.name.capitalize(), error)
            return self._fresh(task), True
        return training, False

    def _fresh(self, task: Task) -> Training:
        work = self.work
        recipe = Recipe.read(work.recipe)
        return Training(self._model(task), task, recipe, work.horizon, work.seed, self.device)

    def _model(self, task: Task) -> nn.Module:
        """The untrained model."""
        blocks.load(self.work.blocks)
        architecture = Architecture.parse(self.work.architecture)
        tasks.check(task, architecture.root)
        set_seed(self.work.seed, self.device)
        return build(architecture).to(self.device)


def evaluate(training: Training, split: Split, deadline: Deadline, positions: int | None = None) -> Evaluation:
    """The task's evaluation on held-out data, with the means of values that blocks report, such as `halting_steps`.

    positions: how many to evaluate on, about; None is all.
    Raises NotFinite for a metric that is not finite, WrongReturn for a task that breaks its contract, TooSlow past the
    deadline.
    """
    model, sums = training.model, Statistics()
    hook = model.register_forward_hook(sums, with_kwargs=True)
    model.eval()
    set_seed(training.seed, training.device)
    try:
        with torch.inference_mode(), training.autocast():
            found = training.task.evaluate(model, _placed(training, split, deadline, positions))
    finally:
        hook.remove()
    if not isinstance(found, Evaluation):
        raise WrongReturn(f"evaluate must return an Evaluation, but it returned {found!r}.")
    numbers = _numbers(found.metrics)
    _check_reported(training.task, numbers)
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise NotFinite(f"The {split} metric {name} is {value} after step {training.step}.")
    for each in found.every:
        _check_documents(each, numbers)
    return Evaluation(sums.means() | numbers, found.documents)


def _check_documents(documents: Documents, metrics: Mapping[str, float]) -> None:
    """Raise WrongReturn if the scores of all documents together do not give their metric."""
    if documents.metric not in metrics:
        raise WrongReturn(f"The documents are scored in {documents.metric!r}, which is none of {', '.join(metrics)}.")
    expected, value = metrics[documents.metric], documents.value
    if not math.isclose(value, expected, rel_tol=SAME, abs_tol=SAME):
        raise WrongReturn(
            f"The documents together must give the metric {documents.metric}, {expected:.6g}, but they give "
            f"{value:.6g}."
        )


def _numbers(metrics: Any) -> dict[str, float]:
    try:
        numbers = {str(name): float(value) for name, value in metrics.items()}
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise WrongReturn(f"metrics must return a dict of numbers, but it returned {metrics!r}.") from None
    for name in numbers:
        if problem := names.name_problem(name):
            raise WrongReturn(problem)
    return numbers


def _check_reported(task: Task, metrics: Mapping[str, float]) -> None:
    """Raise WrongReturn if a declared metric is missing, because an objective may use it."""
    missing = [each.name for each in reported(task) or () if each.name not in metrics]
    if missing:
        raise WrongReturn(
            f"metrics must return what the task reports, but {', '.join(missing)} is missing from "
            f"{', '.join(metrics) or 'nothing'}."
        )


def _placed(training: Training, split: Split, deadline: Deadline, positions: int | None) -> Iterator[Batch]:
    task = training.task
    for batch in task.held_out(split) if positions is None else task.some_held_out(split, positions):
        deadline.check(f"while evaluating after step {training.step}")
        yield place(batch, training.device)


class Statistics:
    """A forward hook that collects what blocks report in the context of each call; of several numbers the mean."""

    def __init__(self) -> None:
        self.totals: dict[str, list[float]] = {}

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Context):
                for name, reported in value.statistics.items():
                    self.totals.setdefault(name, []).extend(float(number.float().mean()) for number in reported)

    def means(self) -> dict[str, float]:
        return {name: sum(values) / len(values) for name, values in self.totals.items()}
