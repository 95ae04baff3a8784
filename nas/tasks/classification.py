"""Tasks that are scored by classes: the loss is in nats, the error is the fraction of wrong answers.

N answers in a batch, V classes that an answer is one of.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks.contract import Batch, Metric, Task
from searchspace.contract import Context


class Classification(Task):
    """A subclass defines `outputs`: logits [N, V] and classes [N]."""

    reports: tuple[Metric, ...] | None = (Metric("error", unit="fraction"), Metric("loss", unit="nats"))

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """error: the fraction of wrong answers. loss: nats an answer."""
        nats = wrong = total = 0.0
        for batch in batches:
            logits, right = self.outputs(model, batch, Context())
            nats += float(F.cross_entropy(logits.float(), right, reduction="sum"))
            wrong += int((logits.argmax(1) != right).sum())
            total += len(right)
        return {"error": wrong / total, "loss": nats / total}

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The most likely class of each answer, [N]."""
        return self.outputs(model, batch, Context())[0].argmax(1)
