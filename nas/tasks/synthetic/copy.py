"""Copy a random sequence: every answer occurs a fixed number of positions earlier.

Attention that knows positions or distances finds it in one step; a state of fixed size must store the whole sequence.
Graves et al. 2014, "Neural Turing Machines", https://arxiv.org/abs/1410.5401, section 4.1. B batch.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from nas.options import Field, Positive
from nas.tasks.registry import task
from nas.tasks.synthetic.recollection import Recollection
from nas.tasks.vocabulary import Words


@task("copy")
class Copy(Recollection):
    """length: positions in all, half of them the symbols to copy and the separator. symbols: their number."""

    def __init__(
        self,
        length: Annotated[Positive, Field(ge=2)] = 32,
        symbols: Annotated[Positive, Field(ge=2)] = 16,
        batch: Positive = 32,
    ) -> None:
        if length % 2:
            raise ValueError(f"length must be even, because half is read and half is written, but got {length}.")
        super().__init__(Words(map(str, range(symbols)), ["separator"]), length, batch)
        self.symbols = symbols
        self.asked = range(length // 2 + 1, length + 1)

    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """w, separator, w."""
        word = random.integers(self.symbols, size=(self.batch, self.length // 2))
        return np.concatenate([word, np.full((self.batch, 1), self.symbols), word], axis=1)
