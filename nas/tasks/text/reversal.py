"""Reverse a piece of text: a sequence-to-sequence task that needs no data in two languages.

Every target symbol depends on one source position, the first on the last. Attention finds that position; a single
vector between encoder and decoder must store all of them. B batch, T length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nas.tasks.contract import greedy
from nas.tasks.registry import task
from nas.tasks.text.derived import OfText
from searchspace.contract import Context
from searchspace.tree import Scalar

Pair = tuple[Tensor, ...]  # source [B, T], target [B, T]


@task("reversal")
class Reversal(OfText):
    """The options are those of `language_model`. The last symbol of the vocabulary starts the target."""

    special = ("start",)

    passes_options_to = OfText

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.source_length = self.target_length = self.length

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder_decoder", "vocabulary": self.symbols + 1}

    def examples(self, text: Tensor, random: np.random.Generator) -> Pair:
        """text: [B, T] -> the text as source and its reversal as target, each [B, T]."""
        return text, text.flip(1)

    def outputs(self, model: nn.Module, batch: Pair, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of each target symbol, [B T, V], given the true ones before it, and the target, [B T]."""
        source, target = batch[:2]
        logits = model(source, torch.cat([self._start(target), target[:, :-1]], dim=1), context)
        return logits.flatten(0, 1), target.flatten()

    def predict(self, model: nn.Module, batch: Pair) -> Tensor:
        """The target as `model` generates it greedily from the source, [B, T]."""
        source, target = batch[:2]
        return greedy(model, self._start(target), target.shape[1], source)

    def _start(self, target: Tensor) -> Tensor:
        return torch.full_like(target[:, :1], self.symbols)
