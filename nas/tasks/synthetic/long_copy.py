"""Remember a few symbols over a long gap: only a model that reaches across all of it can answer.

A window, or segments whose memory is shorter than the gap, never see the symbols to remember.
Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", https://doi.org/10.1162/neco.1997.9.8.1735, section 5, has
gaps of this kind; so does Arjovsky et al. 2016, https://arxiv.org/abs/1511.06464, section 5.1. B batch.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from nas.options import Field, Positive
from nas.tasks.registry import task
from nas.tasks.synthetic.recollection import Recollection
from nas.tasks.vocabulary import Words


@task("long_copy")
class LongCopy(Recollection):
    """remembered: symbols at the start. gap: symbols after them, all fillers except the last, which asks. symbols: the
    number of different symbols to remember."""

    def __init__(
        self,
        remembered: Positive = 4,
        gap: Positive = 72,
        symbols: Annotated[Positive, Field(ge=2)] = 8,
        batch: Positive = 32,
    ) -> None:
        vocabulary = Words(map(str, range(symbols)), ["filler", "ask"])
        super().__init__(vocabulary, 2 * remembered + gap - 1, batch)
        self.remembered, self.gap, self.symbols = remembered, gap, symbols
        self.asked = range(remembered + gap, 2 * remembered + gap)

    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """w, fillers, the symbol that asks, w."""
        word = random.integers(self.symbols, size=(self.batch, self.remembered))
        between = np.full((self.batch, self.gap), self.symbols)
        between[:, -1] += 1
        return np.concatenate([word, between, word], axis=1)
