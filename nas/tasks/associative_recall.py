"""Look up by content: pairs of a key and its value, then the keys in another order, each asking for its value.

A position must be found by what it holds, wherever it is; a state of fixed size must hold all pairs at once. Where keys
and values are symbols apart, an attention, or a convolution, must first join neighbours before another can find them.
Ba et al. 2016, "Using Fast Weights to Attend to the Recent Past", https://arxiv.org/abs/1610.06258, section 4.1, with
one query; Arora et al. 2023, "Zoology", https://arxiv.org/abs/2312.04927, section 3, with many. B batch, P pairs.
"""

from __future__ import annotations

import numpy as np

from nas.tasks.options import whole_number
from nas.tasks.recollection import Recollection
from nas.tasks.registry import task


@task("associative_recall")
class AssociativeRecall(Recollection):
    """pairs: of a sequence. symbols: how many keys there are, and as many values; no key has two in a sequence.
    joined: a pair to look up is one symbol, of which there are symbols * symbols, and not two."""

    def __init__(self, pairs: int = 8, symbols: int = 8, joined: bool = False, batch: int = 32) -> None:
        whole_number("pairs", pairs)
        whole_number("symbols", symbols, low=2)
        if symbols < pairs:
            raise ValueError(f"symbols must be at least pairs, {pairs}, as no key comes twice, but got {symbols}.")
        told = pairs if joined else 2 * pairs
        super().__init__(2 * symbols + joined * symbols**2, told + 2 * pairs - 1, batch)
        self.pairs, self.symbols, self.joined = pairs, symbols, joined
        self.asked = range(told + 1, told + 2 * pairs, 2)

    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """k v k v ... k v k v ..., the same pairs in two orders; values are numbered after keys, joined pairs last."""
        S = self.symbols
        keys = random.random((self.batch, S)).argsort(axis=1)[:, : self.pairs]
        values = random.integers(S, size=keys.shape)
        order = random.random(keys.shape).argsort(axis=1)
        told = 2 * S + keys * S + values if self.joined else _side_by_side(keys, S + values)
        asked = _side_by_side(np.take_along_axis(keys, order, 1), S + np.take_along_axis(values, order, 1))
        return np.concatenate([told, asked], axis=1)


def _side_by_side(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[B, P] each -> [B, 2 P]."""
    return np.stack([keys, values], axis=2).reshape(len(keys), -1)
