"""What a task promises, and what a user's own task file defines: a subclass of `Task`.

The smallest task has `draw` and `loss`; the options of its constructor are the options in the search file:

    class Parity(Task):
        def __init__(self, length: int = 16): ...
        def requires(self): return {"kind": "decoder", "vocabulary": 2}
        def draw(self, split, seed, index): ...  # batch number `index`, the same whenever it is asked for
        def loss(self, model, batch, context): ...

Batches are tensors, or tuples, lists and dicts of them; whoever trains puts them on the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.tree import Scalar

Batch = Any
Split = Literal["train", "validation", "test"]


class Task(ABC):
    """Something to train on. Deterministic: the same options, data and seed give the same batches on every machine."""

    batch: int = 16  # sequences in a training batch
    length: int = 128  # positions in a sequence
    evaluation_batches: int = 16  # how many batches `held_out` draws, unless a task has its own

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """`options` with paths relative to `folder`, where the search file stands, made absolute."""
        return dict(options)

    def prepare(self, cache: Path | None) -> None:  # noqa: B027 (a task without data has nothing to prepare)
        """Read or make the data; called once before anything else but `shape`. `cache` is shared by the processes of a
        node (see `nas.tasks.prepared`), None when there is none."""

    @property
    def data_hash(self) -> str:
        """The SHA-256 of the data, stored with a study; '' for data that follows from the seed alone."""
        return ""

    def requires(self) -> dict[str, Scalar]:
        """What the architecture must say: its `kind`, and fields such as `vocabulary`, `features` or `classes`."""
        return {}

    @property
    def shape(self) -> Shape:
        """The shape of a training batch, for costs."""
        return Shape(batch=self.batch, length=self.length)

    @abstractmethod
    def draw(self, split: Split, seed: int, index: int) -> Batch:
        """Batch number `index`, a pure function: a unit that continues sees what an uninterrupted one would."""

    def batches(self, split: Split, seed: int, start: int = 0) -> Iterator[Batch]:
        """Training batches without end, from number `start`."""
        return (self.draw(split, seed, index) for index in count(start))

    def held_out(self, split: Split) -> Iterator[Batch]:
        """The batches to evaluate on, the same ones every time."""
        return (self.draw(split, 0, index) for index in range(self.evaluation_batches))

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """The mean loss of a batch, a scalar with a gradient. The trainer adds those in `context`."""

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """What `model` reaches on held-out `batches`; called in evaluation mode, without gradients."""
        losses = [self.loss(model, batch, Context()).item() for batch in batches]
        return {"loss": sum(losses) / len(losses)}
