"""Fill in what was hidden of a text, from both sides: what encoders of tokens learn from.

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, section 3.1: of the positions a share is chosen; 80% of
these are hidden by a symbol of its own, 10% replaced by a random one, 10% left as they are. B batch, T length.
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

HIDDEN, REPLACED = 0.8, 0.1  # of the chosen positions
Masked = tuple[Tensor, Tensor, Tensor]  # inputs [B, T], targets [B, T], chosen [B, T] of bool


@task("masked_language_model")
class MaskedLanguageModel(OfText):
    """share: of the positions that are to be filled in; the others as for `language_model`. The last symbol of the
    vocabulary is the one that hides."""

    def __init__(
        self,
        data: str | Sequence[str] | None = None,
        level: str = "bytes",
        length: int = 128,
        batch: int = 16,
        evaluation: int | None = 32_768,
        share: float = 0.15,
    ) -> None:
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, but got {share!r}.")
        super().__init__(data=data, level=level, length=length, batch=batch, evaluation=evaluation)
        self.share = share

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder", "vocabulary": self.symbols + 1, "tokens": True}

    def examples(self, text: Tensor, random: np.random.Generator) -> Masked:
        chosen = random.random(text.shape) < self.share
        chosen[np.arange(len(text)), random.integers(text.shape[1], size=len(text))] = True  # one at least of each
        fate = torch.from_numpy(random.random(text.shape))
        other = torch.from_numpy(random.integers(0, self.symbols, text.shape))
        changed = torch.where(fate < HIDDEN, self.symbols, torch.where(fate < HIDDEN + REPLACED, other, text))
        picked = torch.from_numpy(chosen)
        return torch.where(picked, changed, text), text, picked

    def answers(self, model: nn.Module, batch: Masked, context: Context) -> tuple[Tensor, Tensor]:
        inputs, targets, chosen = batch
        return model(inputs, context)[chosen], targets[chosen]
