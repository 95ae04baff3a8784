"""The training loop. Its results are bitwise the same with and without an interruption.

No random state is stored: (seed, step) decides the batch and the seed of dropout.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nas.tasks.contract import Batch, Task
from nas.tasks.shapes import check_first
from nas.training.determinism import set_seed
from nas.training.recipe import Recipe
from nas.work import Progress
from searchspace.contract import Context, Primitive, Streams

REPORT_SECONDS = 1.0  # between two reports of a running unit
POINTS = 50  # of a learning curve, at most
SYNCHRONISE = 10  # steps between looks at the loss on a GPU, which has to wait for each


class NotFinite(Exception):
    """The loss is infinite or not a number."""


class TooSlow(Exception):
    """The unit exceeded its time limit."""


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Deadline:
    """A time limit in seconds, on the monotonic clock; None is no limit."""

    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    def check(self, where: str) -> None:
        """Raise TooSlow if the time is over."""
        if self.seconds is not None and time.monotonic() - self.began > self.seconds:
            raise TooSlow(f"The limit of {self.seconds:g} seconds was over {where}.")


@dataclass
class Training:
    """A model in training. step: the number of steps done. stepping: whether the next step is in progress."""

    model: nn.Module
    task: Task
    recipe: Recipe
    horizon: int
    seed: int
    device: torch.device
    step: int = 0
    stepping: bool = False
    streams: Streams | None = None  # what the model keeps between the segments of a sequence

    def __post_init__(self) -> None:
        self.recipe.check(self.task)
        self.optimiser = self.recipe.optimiser_for(self.model)
        self.peaks = [group["lr"] for group in self.optimiser.param_groups]
        self.dtype = self.recipe.dtype(self.device)
        blocks = [each for each in self.model.modules() if isinstance(each, Primitive)]
        self.hooked = [each for each in blocks if type(each).after_step is not Primitive.after_step]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    def state(self) -> dict[str, Any]:
        """Everything that a later unit needs to continue."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            **(
                {}
                if self.streams is None
                else {"slots": self.streams.slots, "types": self.streams.types, "read": self.streams.length}
            ),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`. Raises RuntimeError, KeyError or ValueError if it belongs to another model."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])
        self.step = state["step"]
        if "slots" in state:
            self.streams = Streams()
            self.streams.slots, self.streams.types = place(state["slots"], self.device), state["types"]
            self.streams.length = state["read"]

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def run(self, steps: int, deadline: Deadline, report: Report | None = None) -> list[tuple[int, float]]:
        """Train up to `steps` in all -> the curve of (step, training loss), each point a mean over its interval.

        Raises NotFinite for an infinite loss, TooSlow past the deadline, WrongReturn if the task breaks its contract.
        """
        self.model.train()
        meter = Meter(self.step, steps, self.task.shape.rows, report)
        interval = 1 if self.device.type == "cpu" else SYNCHRONISE
        losses: list[Tensor] = []
        batches = self.task.batches("train", self.seed, self.step)
        first = check_first(self.task, self.model)
        while self.step < steps:
            set_seed(self.seed * 1_000_003 + self.step, self.device)
            losses.append(self._advance(self._next(batches)))
            first.remove()
            if len(losses) == interval or self.step == steps:
                meter.add(self.step, _finite(losses, self.step))
                losses = []
            deadline.check(f"at step {self.step} of {steps}")
        return meter.curve

    def _next(self, batches: Iterator[Batch]) -> Batch:
        try:
            return place(next(batches), self.device)
        except StopIteration:
            raise WrongReturn(f"batches must not end, but it ended before step {self.step + 1}.") from None

    def _advance(self, batch: Batch) -> Tensor:
        """One step -> its loss, detached."""
        self.stepping = True
        for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
            group["lr"] = self.recipe.rate(peak, self.step, self.horizon)
        context = self._context()
        with self.autocast():
            loss = self.recipe.loss(self.task, self.model, batch, context)
            check_loss(loss)
            total = loss + context.loss().to(loss.device)
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()
        if self.recipe.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        with torch.no_grad():
            for block in self.hooked:
                block.after_step()
        self.step, self.stepping = self.step + 1, False
        return loss.detach()

    def _context(self) -> Context:
        """The context of a step. In a sequence of several segments, the model continues from its state, and gradients
        stop there."""
        if self.task.segments == 1:
            return Context()
        if self.streams is None or self.step % self.task.segments == 0:
            self.streams = Streams()
        self.streams.detach()
        return Context(streams=self.streams)


class WrongReturn(TypeError):
    """A method of the task returned an invalid value."""


def check_loss(loss: Any) -> None:
    """Raise WrongReturn unless `loss` is a scalar tensor with a gradient."""
    if not isinstance(loss, Tensor):
        raise WrongReturn(f"loss must return a tensor, but it returned {type(loss).__name__}.")
    if loss.numel() != 1 or not loss.requires_grad:
        what = f"shape {list(loss.shape)}" if loss.numel() != 1 else "no gradient"
        raise WrongReturn(f"loss must return a scalar that depends on the model, but it returned a tensor with {what}.")


def place(batch: Batch, device: torch.device) -> Batch:
    """`batch` with every tensor in it on `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: place(item, device) for name, item in batch.items()}
    if isinstance(batch, tuple | list):
        items = [place(item, device) for item in batch]
        return (
            type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
        )  # a NamedTuple takes them one by one
    return batch


def _finite(losses: list[Tensor], step: int) -> list[float]:
    values = [float(loss) for loss in losses]
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise NotFinite(f"The training loss is {value} at step {step - len(values) + index + 1}.")
    return values


class Meter:
    """Turns losses into a curve of at most `POINTS` points, and reports the rate about once a second."""

    def __init__(self, start: int, steps: int, tokens: int, report: Report | None) -> None:
        self.start, self.steps, self.tokens, self.report = start, steps, tokens, report
        self.curve: list[tuple[int, float]] = []
        self.began = self.reported = time.monotonic()
        self._interval = math.ceil(max(1, steps - start) / POINTS)
        self._point: list[float] = []  # losses since the last point of the curve
        self._fresh: list[float] = []  # losses since the last report

    def add(self, step: int, losses: list[float]) -> None:
        self._point += losses
        self._fresh += losses
        if len(self._point) >= self._interval or step == self.steps:
            self.curve.append((step, sum(self._point) / len(self._point)))
            self._point = []
        now = time.monotonic()
        if self.report and (now - self.reported >= REPORT_SECONDS or step == self.steps):
            pace = (step - self.start) / max(now - self.began, 1e-9)  # steps a second
            loss = sum(self._fresh) / len(self._fresh)
            self.report(Progress(step, self.steps, loss, pace * self.tokens))
            self.reported, self._fresh = now, []
