"""Predict the masked symbols of a text from both sides: the usual training task for encoders of tokens.

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, section 3.1: a share of the positions is chosen; 80% of
these are masked by a special symbol, 10% replaced by a random one, 10% left unchanged. B batch, T length.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from nas.options import Field, Fraction, Positive
from nas.tasks.registry import task
from nas.tasks.text.derived import OfText
from searchspace.contract import Context
from searchspace.tree import Scalar

HIDDEN, REPLACED = 0.8, 0.1  # of the chosen positions
Masked = tuple[Tensor, ...]  # inputs [B, T], targets [B, T], chosen [B, T] of bool


@task("masked_language_model")
class MaskedLanguageModel(OfText):
    """share: the share of the positions to predict; the other options are those of `language_model`. The last
    symbol of the vocabulary is the mask."""

    special = ("mask",)
    parts = 3

    passes_options_to = OfText

    def __init__(
        self,
        length: Positive = 128,
        batch: Positive = 16,
        share: Annotated[Fraction, Field(gt=0)] = 0.15,
        **given: Any,
    ) -> None:
        super().__init__(length=length, batch=batch, **given)
        self.share = share

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder", "vocabulary": self.symbols + 1, "tokens": True}

    def examples(self, text: Tensor, random: np.random.Generator) -> Masked:
        """text: [B, T] -> inputs with some symbols masked or replaced, the text, the chosen positions; each [B, T]."""
        chosen = random.random(text.shape) < self.share
        chosen[np.arange(len(text)), random.integers(text.shape[1], size=len(text))] = True  # at least one a sequence
        fate = torch.from_numpy(random.random(text.shape))
        other = torch.from_numpy(random.integers(0, self.symbols, text.shape))
        changed = torch.where(fate < HIDDEN, self.symbols, torch.where(fate < HIDDEN + REPLACED, other, text))
        picked = torch.from_numpy(chosen)
        return torch.where(picked, changed, text), text, picked

    def outputs(self, model: nn.Module, batch: Masked, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of the N chosen positions, [N, V], and their true symbols, [N]."""
        inputs, targets, chosen = batch[:3]
        return model(inputs, context)[chosen], targets[chosen]

    def examples_of(self, batch: Masked, answers: int) -> Tensor:
        """The sequence of each chosen position, [N]."""
        return batch[2].nonzero()[:, 0]

    def predict(self, model: nn.Module, batch: Masked) -> Tensor:
        """The text with the chosen positions filled in by the most likely symbols, [B, T]."""
        inputs, _, chosen = batch[:3]
        return torch.where(chosen, model(inputs, Context()).argmax(-1), inputs)
