"""Recognise how a piece of text was disturbed: one class for a whole sequence of tokens.

The text is unchanged, every symbol is replaced by the next one of the alphabet, or the order is random. The frequencies
of symbols identify the second class; only neighbours identify the third. B batch, T length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nas.options import Positive
from nas.tasks.registry import task
from nas.tasks.text.derived import OfText
from searchspace.contract import Context
from searchspace.tree import Scalar

CLASSES = ("as written", "shifted", "shuffled")
Labelled = tuple[Tensor, ...]  # tokens [B, T], classes [B]


@task("disturbed_text")
class DisturbedText(OfText):
    """The options are those of `language_model`."""

    passes_options_to = OfText

    def __init__(self, length: Positive = 64, **given: Any) -> None:
        super().__init__(length=length, **given)

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder", "vocabulary": self.symbols, "classes": len(CLASSES)}

    def examples(self, text: Tensor, random: np.random.Generator) -> Labelled:
        """text: [B, T] -> disturbed texts [B, T], and their classes [B]."""
        classes = torch.from_numpy(random.integers(len(CLASSES), size=len(text)))
        order = torch.from_numpy(random.random(text.shape)).argsort(dim=1)
        kinds = torch.stack([text, (text + 1) % self.symbols, text.gather(1, order)])  # in the order of CLASSES
        return kinds[classes, torch.arange(len(text))], classes

    def outputs(self, model: nn.Module, batch: Labelled, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of the classes, [B, 3], and the classes, [B]."""
        tokens, classes = batch[:2]
        return model(tokens, context), classes
