"""Trains an architecture as it was trained in its search, or further: units up to each evaluation, one after the other.

Each unit continues from the checkpoint of the one before it, so the numbers are those of one training without a break.
The folder of a training holds the last and the best checkpoint, `training.json` with every evaluation, and
`architecture.yaml`, so that `nas.load(folder)` finds the model.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from nas import tasks
from nas.errors import NasError, UsageError
from nas.exports import header
from nas.exports.header import MADE_BY
from nas.exports.origin import versions
from nas.files import write_whole
from nas.location import CACHE
from nas.tasks.contract import reported
from nas.trained.recorded import ARCHITECTURE, TRAINING, Recorded
from nas.trained.settings import Settings, check_fits
from nas.trained.weights import fill, read_training
from nas.training import checkpoints
from nas.training.loop import Report
from nas.training.unit import run
from nas.work import Checkpoint, Outcome, Work, evaluated
from searchspace.model.build import build

DESCENT = ("study", "trial", "final", "lineage", "licence")  # of the trial that is trained further

Say = Callable[[int, Mapping[str, float]], None]


@dataclass(frozen=True)
class Point:
    """The metrics of an evaluation after `step` steps."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training gave. best: the checkpoint with the best first metric; last: the one to continue from."""

    points: tuple[Point, ...]
    curve: tuple[tuple[int, float], ...]
    last: Checkpoint | None
    best: Checkpoint | None
    best_step: int
    seconds: float


def train(
    record: Recorded,
    settings: Settings,
    *,
    out: Path | None = None,
    start: Mapping[str, Tensor] | None = None,
    resume: bool = False,
    progress: Report | None = None,
    evaluated: Say = lambda step, metrics: None,
) -> Trained:
    """Train up to `settings.steps`, with an evaluation at each of `settings.points`.

    start: weights to begin with, in place of new ones. resume: continue from the last checkpoint in `out`, else from
    that of the recorded trial. evaluated: called after each evaluation. Raises UsageError if the architecture does not
    fit the task, if there is nothing to resume from or it is already at the end, or if `out` holds other work, NasError
    if a unit fails.
    """
    check_fits(record.architecture, tasks.load_prepared(settings.task, settings.source, CACHE))
    if out is not None:
        check_folder(out, resume=resume)
        out.mkdir(parents=True, exist_ok=True)
    with nullcontext(out) if out is not None else tempfile.TemporaryDirectory() as folder:
        return _Series(record, settings, Path(folder).absolute(), out is not None, progress, evaluated).run(
            start, resume
        )


def check_folder(out: Path, *, resume: bool) -> None:
    """Raise UsageError if a training in `out` would hide or replace other work: an export, or a training.

    A training that is resumed may be there.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: --out must name a folder.")
    if (out / "model.safetensors").exists():
        raise UsageError(f"{out} holds exported weights, which a training would not change. Name another --out.")
    if (out / TRAINING).exists() and not resume:
        raise UsageError(f"{out} holds a training already. Continue it with --resume, or name another --out.")
    if (out / ARCHITECTURE).exists() and not header.read(out / ARCHITECTURE):
        raise UsageError(f"{out} holds an {ARCHITECTURE} of your own, which would be replaced. Name another --out.")


class _Series:
    """A training as a series of units in `folder`. keeps: whether the folder stays."""

    def __init__(
        self, record: Recorded, settings: Settings, folder: Path, keeps: bool, progress: Report | None, evaluated: Say
    ) -> None:
        self.record, self.settings, self.folder, self.keeps = record, settings, folder, keeps
        self.progress, self.evaluated = progress, evaluated
        self.points: list[Point] = []
        self.curve: list[tuple[int, float]] = []
        self.best: Checkpoint | None = None
        self.last: Checkpoint | None = None
        self.best_step = 0
        self.task = tasks.load_prepared(settings.task, settings.source, CACHE)
        first = (reported(self.task) or (None,))[0]
        self.metric = None if first is None else first.name
        self.sign = -1.0 if first is not None and first.direction == "maximize" else 1.0

    def run(self, weights: Mapping[str, Tensor] | None, resume: bool) -> Trained:
        done = self._resumed() if resume else 0
        if weights is not None:
            self.last = self._of_weights(weights)
        if self.keeps:
            self._describe()
        seconds = 0.0
        for number, steps in enumerate(each for each in self.settings.points if each > done):
            outcome = run(self._work(number, steps), self.progress)
            if outcome.failure is not None:
                raise NasError(f"{outcome.failure.kind}: {outcome.failure.message}")
            seconds += outcome.seconds
            self._ended(steps, outcome)
        return Trained(
            points=tuple(self.points),
            curve=tuple(self.curve),
            last=self.last if self.keeps else None,
            best=self.best if self.keeps else None,
            best_step=self.best_step,
            seconds=seconds,
        )

    def _work(self, number: int, steps: int) -> Work:
        s = self.settings
        rows = tasks.loaded(s.task, s.source).shape.rows
        as_in_search = self.record.of_search and steps in self.record.rungs  # its numbers come out again
        return Work(
            study="train",
            trial=0,
            rung=number,
            architecture=self.record.architecture.text(),
            task=s.task,
            recipe=s.recipe,
            steps=steps,
            horizon=s.horizon,
            seed=s.seed,
            start=self.last,
            checkpoint=str(self.folder),
            threads=s.threads,
            device=s.device,
            cache=str(CACHE),
            task_source=s.source,
            blocks=self.record.blocks,
            evaluated=evaluated(steps, rows) if as_in_search else None,
        )

    def _ended(self, steps: int, outcome: Outcome) -> None:
        """Keep the last and the best checkpoint, and remove the one that is neither."""
        self.points.append(Point(steps, dict(outcome.metrics)))
        self.curve += outcome.curve
        before, self.last = self.last, outcome.checkpoint
        older = self.best
        if self.best is None or self._is_better(outcome.metrics, self._at(self.best_step)):
            self.best, self.best_step = self.last, steps
        for each in {before, older} - {self.best, self.last, None}:
            if each is not None and Path(each.uri).parent == self.folder:
                checkpoints.delete(each)
        if self.keeps:
            self._write()
        self.evaluated(steps, outcome.metrics)

    def _is_better(self, now: Mapping[str, float], best: Mapping[str, float]) -> bool:
        """Whether the first metric is better; any number is better than none."""
        value, before = self._value(now), self._value(best)
        return value < before or (math.isnan(before) and not math.isnan(value))

    def _value(self, metrics: Mapping[str, float]) -> float:
        return self.sign * (
            metrics[self.metric] if self.metric is not None and self.metric in metrics else next(iter(metrics.values()))
        )

    def _at(self, step: int) -> Mapping[str, float]:
        return next(each.metrics for each in self.points if each.step == step)

    def _write(self) -> None:
        found = {
            "architecture": self.record.architecture.hash,
            "points": [asdict(each) for each in self.points],
            "curve": self.curve,
            "best_step": self.best_step,
            "best": self.best and asdict(self.best),
            "last": self.last and asdict(self.last),
        }
        write_whole(self.folder / TRAINING, json.dumps(found, indent=1).encode())

    def _resumed(self) -> int:
        """The steps of the checkpoint to continue from: in the folder, else that of the trial."""
        s, path = self.settings, self.folder / TRAINING
        if path.is_file():
            found = read_training(path)
            if found.architecture != self.record.architecture.hash:
                raise UsageError(f"{self.folder} holds a training of another architecture. Name another --out.")
            data = header.read(self.folder / ARCHITECTURE).get("data_sha256", self.task.data_hash)
            if data != self.task.data_hash:
                raise UsageError(
                    f"{self.folder} holds a training on other data, whose metrics cannot be compared. Begin another "
                    "training with its weights: --from the folder, and another --out."
                )
            self.points = [Point(**each) for each in found.points]
            self.curve, self.best, self.last = found.curve, found.best, found.last
            self.best_step = found.best_step
        elif self.record.checkpoint is not None:
            self.last = self.record.checkpoint
        else:
            raise UsageError(
                f"There is nothing to resume: {self.folder} holds no training, and {self.record.name} has no "
                "checkpoint. Leave out --resume, or begin with weights: --from FILE."
            )
        try:
            done = checkpoints.read(self.last or Checkpoint("", ""))["step"]
        except checkpoints.CheckpointLost as error:
            raise NasError(str(error)) from None
        if done >= s.steps:
            raise UsageError(f"The training is at step {done} already. Give more with --steps, above {done}.")
        return int(done)

    def _of_weights(self, weights: Mapping[str, Tensor]) -> Checkpoint:
        """A checkpoint at step 0 that holds `weights`."""
        import torch

        from nas.training.loop import Training
        from nas.training.recipe import Recipe

        model = build(self.record.architecture)
        fill(model, weights, self.record.name)
        s = self.settings
        training = Training(model, self.task, Recipe.read(s.recipe), s.horizon, s.seed, torch.device("cpu"))
        return checkpoints.write(training.state(), str(self.folder), "start")

    def _describe(self) -> None:
        """Write the architecture, with what `nas.load` needs in its header."""
        s, vocabulary = self.settings, self.task.vocabulary
        head = {
            "made_by": MADE_BY,
            "architecture": self.record.architecture.hash,
            **{name: self.record.header[name] for name in DESCENT if name in self.record.header},
            "trained_from": self.record.name,
            "search": {"steps": s.steps, "horizon": s.horizon, "seed": s.seed},
            "costs": {"length": self.task.shape.length},
            "task": {name: dict(options) for name, options in s.task.items()},
            **({"task_source": s.source} if s.source else {}),
            **({"blocks": dict(self.record.blocks)} if self.record.blocks else {}),
            **({"vocabulary": vocabulary.to_dict()} if vocabulary is not None else {}),
            "data_sha256": self.task.data_hash,
            "recipe": dict(s.recipe) or "the defaults",
            "environment": {"device": s.device, **versions()},
        }
        text = header.comment(head) + self.record.architecture.text()
        write_whole(self.folder / ARCHITECTURE, text.encode())
