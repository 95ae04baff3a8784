"""The base of the tasks that ask a decoder for what it read before: random sequences in which some symbols are answers.

B batch, T positions read, N answers of a sequence.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from nas.tasks.classification import Classification
from nas.tasks.contract import SPLITS, Batch, Split
from nas.tasks.vocabulary import Vocabulary, Words
from searchspace.contract import Context
from searchspace.tree import Scalar


class Recollection(Classification):
    """asked: positions of the answers in a sequence of `length` + 1 symbols; the model does not read the last one."""

    asked: range
    vocabulary: Vocabulary

    def __init__(self, vocabulary: Words, length: int, batch: int) -> None:
        self.vocabulary, self.length, self.batch = vocabulary, length, batch

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "decoder", "vocabulary": self.vocabulary.size}

    @abstractmethod
    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """[B, T + 1] whole numbers below the size of the vocabulary."""

    def draw(self, split: Split, seed: int, index: int) -> Tensor:
        """[B, T + 1] symbols, int64."""
        return torch.from_numpy(self.sequences(np.random.default_rng([SPLITS.index(split), seed, index])))

    def outputs(self, model: nn.Module, batch: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of each answer, [B N, V], given the true ones before it, and the answers, [B N]."""
        places = torch.tensor(self.asked, device=batch.device)
        logits = model(batch[:, :-1], context)[:, places - 1]
        return logits.flatten(0, 1), batch[:, places].flatten()

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The most likely answers, each given the true ones before it, [B, N]."""
        return super().predict(model, batch).view(len(batch), len(self.asked))
