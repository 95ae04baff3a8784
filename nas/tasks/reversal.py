"""Write a piece of text backwards: a translation that needs no data of two languages, for encoder-decoders.

Every target symbol depends on one source position, the first on the last: attention finds it, while a single vector
between encoder and decoder must hold it all. B batch, T length.
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

Pair = tuple[Tensor, Tensor]  # source [B, T], target [B, T]


@task("reversal")
class Reversal(OfText):
    """As for `language_model`; the last symbol of the vocabulary starts the target."""

    def __init__(
        self,
        data: str | Sequence[str] | None = None,
        level: str = "bytes",
        length: int = 32,
        batch: int = 32,
        evaluation: int | None = 8_192,
    ) -> None:
        super().__init__(data=data, level=level, length=length, batch=batch, evaluation=evaluation)

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder_decoder", "vocabulary": self.symbols + 1}

    def examples(self, text: Tensor, random: np.random.Generator) -> Pair:
        return text, text.flip(1)

    def answers(self, model: nn.Module, batch: Pair, context: Context) -> tuple[Tensor, Tensor]:
        """Each symbol of the target given the true ones before it."""
        source, target = batch
        start = torch.full_like(target[:, :1], self.symbols)
        logits = model(source, torch.cat([start, target[:, :-1]], dim=1), context)
        return logits.flatten(0, 1), target.flatten()
