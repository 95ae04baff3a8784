"""Write a random sequence again: every answer stands a fixed number of positions before it.

Attention that knows positions, or distances, finds it in one step; a state of fixed size must hold all of it.
Graves et al. 2014, "Neural Turing Machines", https://arxiv.org/abs/1410.5401, section 4.1. B batch.
"""

from __future__ import annotations

import numpy as np

from nas.tasks.options import whole_number
from nas.tasks.recollection import Recollection
from nas.tasks.registry import task


@task("copy")
class Copy(Recollection):
    """length: positions in all, half of them the symbols to copy and the separator. symbols: how many there are."""

    def __init__(self, length: int = 32, symbols: int = 16, batch: int = 32) -> None:
        whole_number("length", length, low=2)
        whole_number("symbols", symbols, low=2)
        if length % 2:
            raise ValueError(f"length must be even, as all is read and then written, but got {length}.")
        super().__init__(symbols + 1, length, batch)
        self.symbols = symbols
        self.asked = range(length // 2 + 1, length + 1)

    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """w, separator, w."""
        word = random.integers(self.symbols, size=(self.batch, self.length // 2))
        return np.concatenate([word, np.full((self.batch, 1), self.symbols), word], axis=1)
