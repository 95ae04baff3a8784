"""What tasks share that score answers, each one of V: the loss is nats an answer, the error a fraction of wrong ones.

N answers in a batch, V what an answer is one of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks.contract import Batch, Task
from searchspace.contract import Context


class Answered(Task):
    @abstractmethod
    def answers(self, model: nn.Module, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """The logits that the model gives, [N, V], and what is right, [N]."""

    def loss(self, model: nn.Module, batch: Batch, context: Context) -> Tensor:
        """Mean nats an answer."""
        logits, right = self.answers(model, batch, context)
        return F.cross_entropy(logits.float(), right)

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """error: the fraction of answers that is wrong. loss: nats an answer."""
        nats = wrong = total = 0.0
        for batch in batches:
            logits, right = self.answers(model, batch, Context())
            nats += float(F.cross_entropy(logits.float(), right, reduction="sum"))
            wrong += int((logits.argmax(1) != right).sum())
            total += len(right)
        return {"error": wrong / total, "loss": nats / total}
