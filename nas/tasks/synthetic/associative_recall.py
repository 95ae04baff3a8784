"""Look up by content: pairs of a key and its value, then the keys in another order, each followed by its value.

A model must find a position by its content, wherever it is; a state of fixed size must hold all pairs at once. If keys
and values are separate symbols, an attention or a convolution must join neighbours before another can find them.
Ba et al. 2016, "Using Fast Weights to Attend to the Recent Past", https://arxiv.org/abs/1610.06258, section 4.1, with
one query; Arora et al. 2023, "Zoology", https://arxiv.org/abs/2312.04927, section 3, with many. B batch, P pairs.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from nas.options import Field, Positive
from nas.tasks.registry import task
from nas.tasks.synthetic.recollection import Recollection
from nas.tasks.vocabulary import Words


@task("associative_recall")
class AssociativeRecall(Recollection):
    """pairs: in a sequence. symbols: the number of keys, and of values; no key occurs twice in a sequence. joined: a
    shown pair is one of symbols * symbols further symbols, not two symbols."""

    def __init__(
        self,
        pairs: Positive = 8,
        symbols: Annotated[Positive, Field(ge=2)] = 8,
        joined: bool = False,
        batch: Positive = 32,
    ) -> None:
        if symbols < pairs:
            raise ValueError(
                f"symbols must be at least pairs, {pairs}, because no key occurs twice, but got {symbols}."
            )
        shown = pairs if joined else 2 * pairs
        super().__init__(_words(symbols, joined), shown + 2 * pairs - 1, batch)
        self.pairs, self.symbols, self.joined = pairs, symbols, joined
        self.asked = range(shown + 1, shown + 2 * pairs, 2)

    def sequences(self, random: np.random.Generator) -> np.ndarray:
        """k v k v ... k v k v ..., the same pairs in two orders; values are numbered after keys, joined pairs last."""
        S = self.symbols
        keys = random.random((self.batch, S)).argsort(axis=1)[:, : self.pairs]
        values = random.integers(S, size=keys.shape)
        order = random.random(keys.shape).argsort(axis=1)
        shown = 2 * S + keys * S + values if self.joined else _side_by_side(keys, S + values)
        asked = _side_by_side(np.take_along_axis(keys, order, 1), S + np.take_along_axis(values, order, 1))
        return np.concatenate([shown, asked], axis=1)


def _words(symbols: int, joined: bool) -> Words:
    """k0 k1 ... v0 v1 ..., and with `joined` k0v0 k0v1 ..."""
    keys, values = ([f"{letter}{number}" for number in range(symbols)] for letter in "kv")
    return Words([*keys, *values, *(key + value for key in keys for value in values if joined)])


def _side_by_side(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[B, P] each -> [B, 2 P]."""
    return np.stack([keys, values], axis=2).reshape(len(keys), -1)
