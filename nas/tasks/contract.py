"""The contract of a task, and what a user's own task file defines: a subclass of `Task`.

The smallest task has `draw` and `loss`; the parameters of its constructor are its options in the search file:

    class Parity(Task):
        reports = (Metric("loss", unit="nats"),)

        def __init__(self, length: int = 16): ...
        def requires(self): return {"kind": "decoder", "vocabulary": 2}
        def draw(self, split, seed, index): ...  # batch number `index`, the same every time
        def loss(self, model, batch, context): ...

A task that defines `outputs` in place of `loss` leaves the loss to a criterion, which the recipe may then choose. If
the task declares its `target_kind`, a criterion for other targets is rejected before any training.
Batches are tensors, or tuples, lists and dicts of them; the trainer moves them to the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nas.criteria.registry import TargetKind, plain
from nas.documents import Documents, Evaluation
from nas.metrics import name_problem
from nas.tasks.vocabulary import Vocabulary
from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.tree import Scalar

__all__ = ["SPLITS", "Batch", "Documents", "Evaluation", "Metric", "Split", "Task"]

EVALUATED_AT_ONCE = 4_096  # positions of a held-out batch: small ones take several times as long for the same data
MORE = 16  # times the training batch, at most: without gradients a model of as many layers needs no more memory

Batch = Any
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Metric:
    """A number that `metrics` returns under `name`: which direction is better, and its unit.

    Raises ValueError for a name with a slash or `=`, that begins or ends with a space, or that is one of the runner,
    such as `training loss` (`nas.metrics.name_problem`).
    """

    name: str
    direction: Literal["minimize", "maximize"] = "minimize"
    unit: str = ""

    def __post_init__(self) -> None:
        if problem := name_problem(self.name):
            raise ValueError(problem)
        if "/" in self.name:
            raise ValueError(f"The name of a metric must not have a slash, but got {self.name!r}.")
        if "=" in self.name or self.name != self.name.strip():  # `nas tell` writes NAME=VALUE
            raise ValueError(
                f"A metric's name must neither hold `=` nor begin or end with a space, but got {self.name!r}."
            )
        if self.direction not in ("minimize", "maximize"):
            raise ValueError(f"The direction of a metric must be minimize or maximize, but got {self.direction!r}.")


class Task(ABC):
    """A task to train on. The same options, data and seed give the same batches on every machine."""

    batch: int = 16  # sequences in a training batch
    length: int = 128  # positions of a sequence that the model reads
    source_length: int | None = None  # positions that an encoder reads before a decoder; None: as many as `length`
    target_length: int | None = None  # positions that the decoder then reads; None: as many as `length`
    segments: int = (
        1  # consecutive training batches that continue the same sequences; the model keeps its state in between
    )
    evaluation_batches: int = 16  # how many batches `held_out` draws, unless a task overrides it

    reports: tuple[Metric, ...] | None = None  # what `metrics` returns; None: the task does not say
    vocabulary: Vocabulary | None = None  # of the symbols in its batches, once prepared; None: it has no symbols
    criterion: str = "cross_entropy"  # computes the loss from `outputs`, unless the recipe names another criterion
    target_kind: TargetKind | None = None  # of the targets that `outputs` gives; None: the task does not say

    def __init_subclass__(cls, **options: Any) -> None:
        """If a class defines only one of `metrics` and `evaluate`, use it, even if its base class defines the other.

        If it defines its outputs and how they are scored, their kind is no longer that of its base class.
        """
        super().__init_subclass__(**options)
        defined = {"metrics", "evaluate"} & vars(cls).keys()
        for other in {"metrics", "evaluate"} - defined if defined else ():
            setattr(cls, other, getattr(Task, other))
        if defined and "outputs" in vars(cls) and "target_kind" not in vars(cls):
            cls.target_kind = None

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """`options` with every path relative to `folder`, the folder of the search file, made absolute."""
        return dict(options)

    def prepare(self, cache: Path | None) -> None:  # noqa: B027 (a task without data has nothing to prepare)
        """Read or make the data. It is called once, before every other method but `shape`.

        The processes of a node share the folder `cache` (see `nas.tasks.prepared`); None if there is none.
        """

    @property
    def data_hash(self) -> str:
        """The SHA-256 of the data, stored with a study; '' for data that depends only on the seed."""
        return ""

    def data_facts(self) -> dict[str, Any]:
        """Facts about the data for the readers of a result, as plain data for JSON; may be empty. Call `prepare` first.

        Text tasks give the sizes of the parts, what a document is, and how much of the held-out text also occurs in the
        training part.
        """
        return {}

    def requires(self) -> dict[str, Scalar]:
        """The fields of an architecture that the task decides: its `kind`, `vocabulary`, `features`, `classes`."""
        return {}

    @property
    def shape(self) -> Shape:
        """The shape of a training batch, for costs; its `memory` is the source of an encoder-decoder."""
        target = self.length if self.target_length is None else self.target_length
        return Shape(batch=self.batch, length=target, memory=self.source_length or 0)

    @abstractmethod
    def draw(self, split: Split, seed: int, index: int) -> Batch:
        """Batch number `index`. It is a pure function, so a resumed unit sees the same batches."""

    def batches(self, split: Split, seed: int, start: int = 0) -> Iterator[Batch]:
        """Endless training batches, from number `start`."""
        return (self.draw(split, seed, index) for index in count(start))

    def held_out(self, split: Split) -> Iterator[Batch]:
        """The batches to evaluate on, the same ones every time."""
        return (self.draw(split, 0, index) for index in range(self.evaluation_batches))

    def some_held_out(self, split: Split, positions: int) -> Iterator[Batch]:
        """As `held_out`, but about as many positions, spread over the data: what a unit of a search is evaluated on, so
        that its evaluation takes a bounded share of its training. By default all of them.
        """
        return self.held_out(split)

    def held_out_positions(self, split: Split) -> int:
        """How many positions the model reads in `held_out`, about."""
        return self.evaluation_batches * self.shape.rows

    @property
    def held_out_batch(self) -> int:
        """Sequences in a batch of held-out data."""
        return max(self.batch, min(MORE * self.batch, EVALUATED_AT_ONCE // self.shape.length))

    def outputs(self, model: nn.Module, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """The predictions of the model, [N, V] or any shape, and the targets, [N] or the same shape.

        Raises NotImplementedError if the task defines a loss instead.
        """
        raise NotImplementedError(f"The task {type(self).__name__} defines no outputs.")

    def loss(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """The mean loss of a batch, a scalar with a gradient; the trainer adds the losses in `context`."""
        return plain(self.criterion)(*self.outputs(model, batch, context))

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """The metrics of `model` on held-out `batches`; called in evaluation mode, without gradients."""
        if type(self).evaluate is not Task.evaluate:
            return self.evaluate(model, batches).metrics
        return self._mean_loss(model, batches)

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        """The metrics, and some of them by document if the task has documents. A task overrides this or `metrics`.

        The score of all documents together must equal the metric of that name. A unit stores the scores by document for
        the metric of the study's first objective, or the first such scores if there are none for that metric.
        """
        if type(self).metrics is not Task.metrics:
            return Evaluation(self.metrics(model, batches))
        return Evaluation(self._mean_loss(model, batches))

    def _mean_loss(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        losses = [self.loss(model, batch, Context()).item() for batch in batches]
        return {"loss": sum(losses) / len(losses)}

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The answers of `model` to the inputs in `batch`: classes [B], or greedily generated symbols [B, T].

        Call it in evaluation mode. Raises NotImplementedError if the task does not define it.
        """
        raise NotImplementedError(f"The task {type(self).__name__} defines no predict.")


def defines_outputs(task: Task) -> bool:
    """Whether the task leaves its loss to a criterion: it defines `outputs` and no `loss`."""
    return type(task).loss is Task.loss and type(task).outputs is not Task.outputs


def reported(task: Task) -> tuple[Metric, ...] | None:
    """The metrics that `task` returns; None for a task of the user that does not declare them.

    Raises ValueError if what it declares is no tuple of metrics.
    """
    if task.reports is None and type(task).metrics is Task.metrics and type(task).evaluate is Task.evaluate:
        return (Metric("loss"),)
    if task.reports is not None and not all(isinstance(each, Metric) for each in task.reports):
        name = type(task).__name__
        raise ValueError(f"{name}.reports must be a tuple of nas.tasks.Metric, but is {task.reports!r}.")
    return task.reports


def greedy(model: nn.Module, prompt: Tensor, steps: int, *before: Tensor, padding: Tensor | None = None) -> Tensor:
    """Generate `steps` symbols, each the most likely one. prompt: [B, P] -> [B, steps], int64.

    before: inputs of the model in front of the prompt, such as the source of an encoder-decoder. padding: [B, S], True
    where that source is real; None if all of it is.
    """
    symbols = prompt
    for _ in range(steps):
        logits = model(*before, symbols, Context(memory_padding=padding))  # [B, P + n, V]
        symbols = torch.cat([symbols, logits[:, -1:].argmax(-1)], dim=1)
    return symbols[:, prompt.shape[1] :]
