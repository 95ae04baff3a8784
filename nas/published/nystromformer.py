"""Hugging Face's Nystromformer, https://github.com/huggingface/transformers:
`models/nystromformer/modeling_nystromformer.py`.

The released code starts the iteration of all heads and samples from one number, and it includes padding in the
landmarks. `released: true`, which this layout sets, does the same. It reads sequences of one length, a multiple of the
number of landmarks. The first two rows of its table of positions are unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published import bert
from nas.published.layout import Layout, Rule, Weights, each, tensor

NO_POSITIONS = 2
TAPS = "encoder.layer.{n}.attention.self.conv.weight"


def _fields(weights: Weights) -> dict[str, Any]:
    fields = bert.sizes(weights) | bert.head(weights, "cls.predictions.bias")
    heads, _, kernel, _ = weights[TAPS.format(n=0)].shape
    return fields | {
        "learned.length": weights.rows(bert.POSITIONS) - NO_POSITIONS,
        "feed_forward.hidden": weights.rows(bert.INNER),
        "heads": heads,
        "kernel": kernel,
        "nystrom_attention.released": True,
    }


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from (*bert.EMBEDDINGS, *bert.TOKENS)
    yield from tensor("position.table", bert.POSITIONS, make=lambda table: table[NO_POSITIONS:])
    layer = (*bert.FUSED_ATTENTION, *bert.AROUND, *tensor("body.{a}.of.0.taps", TAPS))
    yield from each(layer, weights.count("encoder.layer."))


LAYOUT = Layout(
    zoo=("nystromformer",),
    prefix="nystromformer.",
    fields=_fields,
    rules=_rules,
    left_out=(bert.BUFFERS, bert.NEXT_SENTENCE),
    tied=bert.TIED,
    unread=(),
)
