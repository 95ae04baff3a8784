"""Tell how a piece of text was disturbed: one class for a whole sequence of tokens, from text alone.

As written, every symbol the next one of the alphabet, or all in a random order: counts of symbols tell the second, and
neighbours alone the third. B batch, T length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from nas.tasks.of_text import OfText
from nas.tasks.registry import task
from searchspace.contract import Context
from searchspace.tree import Scalar

CLASSES = ("as written", "shifted", "shuffled")
Labelled = tuple[Tensor, Tensor]  # tokens [B, T], classes [B]


@task("disturbed_text")
class DisturbedText(OfText):
    """As for `language_model`."""

    def __init__(
        self,
        data: str | Sequence[str] | None = None,
        level: str = "bytes",
        length: int = 64,
        batch: int = 32,
        evaluation: int | None = 32_768,
    ) -> None:
        super().__init__(data=data, level=level, length=length, batch=batch, evaluation=evaluation)

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder", "vocabulary": self.symbols, "classes": len(CLASSES)}

    def examples(self, text: Tensor, random: np.random.Generator) -> Labelled:
        classes = torch.from_numpy(random.integers(len(CLASSES), size=len(text)))
        order = torch.from_numpy(random.random(text.shape)).argsort(dim=1)
        kinds = torch.stack([text, (text + 1) % self.symbols, text.gather(1, order)])  # in the order of CLASSES
        return kinds[classes, torch.arange(len(text))], classes

    def answers(self, model: nn.Module, batch: Labelled, context: Context) -> tuple[Tensor, Tensor]:
        tokens, classes = batch
        return model(tokens, context), classes
