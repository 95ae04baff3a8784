"""What the tasks made of pieces of text share: where the text comes from, and how answers are scored.

B batch, T length, N answers in a batch, V what an answer is one of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks.contract import Batch, Split, Task
from nas.tasks.language_model import LanguageModel
from searchspace.contract import Context


class OfText(Task):
    """The options are those of `language_model`: data, level, length, batch, evaluation."""

    def __init__(self, **options: Any) -> None:
        self.source = LanguageModel(**options)
        self.length, self.batch = self.source.length, self.source.batch

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        return LanguageModel.resolve(options, folder)

    def prepare(self, cache: Path | None) -> None:
        self.source.prepare(cache)

    @property
    def data_hash(self) -> str:
        return self.source.data_hash

    @property
    def symbols(self) -> int:
        """How many the text has; the number after the last is free for a symbol of the task's own."""
        return self.source.text.vocabulary

    @abstractmethod
    def examples(self, text: Tensor, random: np.random.Generator) -> Batch:
        """text: [B, T] -> a batch; `random` decides what is to be decided."""

    @abstractmethod
    def answers(self, model: nn.Module, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """The logits that the model gives, [N, V], and what is right, [N]."""

    def draw(self, split: Split, seed: int, index: int) -> Batch:
        return self.examples(self.source.draw(split, seed, index)[0], np.random.default_rng([seed, index, 1]))

    def held_out(self, split: Split) -> Iterator[Batch]:
        for index, windows in enumerate(self.source.held_out(split)):
            yield self.examples(windows[0], np.random.default_rng([0, index, 2]))

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
