"""What the tasks share that ask a decoder for what it read before: random sequences, some of whose symbols are answers.

B batch, T positions read, N answers of a sequence.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from nas.tasks.answers import Answered
from nas.tasks.contract import Split
from nas.tasks.language_model import SPLITS
from nas.tasks.options import whole_number
from searchspace.contract import Context
from searchspace.tree import Scalar


class Recollection(Answered):
    """`asked`: places of the answers in a sequence of `length` + 1 symbols, of which the last is not read."""

    asked: range

    def __init__(self, vocabulary: int, length: int, batch: int) -> None:
        whole_number("batch", batch)
        self.vocabulary, self.length, self.batch = vocabulary, length, batch

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "decoder", "vocabulary": self.vocabulary}

    @abstractmethod
    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """[B, T + 1] whole numbers below `vocabulary`."""

    def draw(self, split: Split, seed: int, index: int) -> Tensor:
        return torch.from_numpy(self.sequences(np.random.default_rng([SPLITS.index(split), seed, index])))

    def answers(self, model: nn.Module, batch: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Each answer given the true ones before it; nothing else is scored."""
        places = torch.tensor(self.asked, device=batch.device)
        logits = model(batch[:, :-1], context)[:, places - 1]
        return logits.flatten(0, 1), batch[:, places].flatten()
