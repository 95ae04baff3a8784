"""Classification tasks: the loss is in nats, the error is the fraction of wrong answers.

N answers in a batch, V classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.criteria.registry import TargetKind
from nas.documents import Evaluation, Tally
from nas.tasks.contract import Batch, Metric, Task
from searchspace.contract import Context


class Classification(Task):
    """A subclass defines `outputs`: logits [N, V] and classes [N]."""

    target_kind: TargetKind | None = "classes"

    reports: tuple[Metric, ...] | None = (Metric("error", unit="fraction"), Metric("loss", unit="nats"))

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """error: the fraction of wrong answers. loss: nats an answer."""
        return self._scored(model, batches).metrics

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        """The metrics, and both by document. Each example is a document, unless the task defines documents."""
        return self._scored(model, batches)

    def examples_of(self, batch: Batch, answers: int) -> Tensor:
        """The example of each of the N `answers` of a batch: numbers from 0, [N].

        By default all sequences of a batch have the same number of answers, in the order of the sequences.
        """
        first = next((each for each in _tensors(batch) if each.ndim), None)
        sequences = answers if first is None or answers % len(first) else len(first)
        return torch.arange(sequences).repeat_interleave(answers // sequences)

    def tally(self) -> Tally:
        """Counts the answers by document."""
        return Tally()

    def documents_of(self, batch: Batch, examples: int, before: int) -> Tensor:
        """The document of each of the `examples` of a batch, [examples]; `before` examples were in earlier batches."""
        return torch.arange(before, before + examples)

    def _scored(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        nats = wrong = total = 0.0
        by_error, by_loss, seen = self.tally(), self.tally(), 0
        for batch in batches:
            logits, right = self.outputs(model, batch, Context())
            losses = F.cross_entropy(logits.detach().float(), right, reduction="none").double().cpu()
            missed = (logits.argmax(1) != right).cpu()
            nats += float(losses.sum())
            wrong += int(missed.sum())
            total += len(right)
            examples = self.examples_of(batch, len(right)).cpu()
            count = int(examples.max()) + 1
            documents = self.documents_of(batch, count, seen).cpu()[examples]
            by_error.add(documents.numpy(), missed.numpy())
            by_loss.add(documents.numpy(), losses.numpy())
            seen += count
        by_document = by_error.documents("error"), by_loss.documents("loss")
        return Evaluation({"error": wrong / total, "loss": nats / total}, by_document)

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The most likely class of each answer, [N]."""
        return self.outputs(model, batch, Context())[0].argmax(1)


def _tensors(batch: Batch) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        yield from _tensors(list(batch.values()))
    elif isinstance(batch, tuple | list):
        for each in batch:
            yield from _tensors(each)
