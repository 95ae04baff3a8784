"""Hugging Face's BigBird, https://github.com/huggingface/transformers: `models/big_bird/modeling_big_bird.py`.

The random blocks are not stored in the weights. Here they are drawn from a seed. There they are drawn from a generator
in training, and in evaluation the first block is read once more instead. Up to (5 + 2 r) b positions each position
reads all others in both, and the numbers are equal. Beyond that they are equal only where the drawn blocks are, and in
a padded batch with the option `end: padded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published import bert
from nas.published.layout import Layout, Rule, Weights, each, tensor


def _fields(weights: Weights) -> dict[str, Any]:
    own = {"learned.length": weights.rows(bert.POSITIONS), "feed_forward.hidden": weights.rows(bert.INNER)}
    return bert.sizes(weights) | own | bert.head(weights, "cls.predictions.bias")


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from (*bert.EMBEDDINGS, *tensor("position.table", bert.POSITIONS), *bert.TOKENS)
    yield from each((*bert.FUSED_ATTENTION, *bert.AROUND), weights.count("encoder.layer."))


LAYOUT = Layout(
    zoo=("bigbird",),
    prefix="bert.",
    fields=_fields,
    rules=_rules,
    left_out=(bert.BUFFERS, bert.NEXT_SENTENCE, r"pooler\.(weight|bias)"),
    tied=bert.TIED,
)
