"""Hugging Face's Longformer, https://github.com/huggingface/transformers: `models/longformer/modeling_longformer.py`.

Here the global positions are the first ones of a sequence. With the option `global_at: context` they are those of
`Context.global_positions`, which stands for `global_attention_mask`. Their number and the width of the windows are
options of the zoo's architecture. The first two rows of the table of positions are unused and for padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published import bert
from nas.published.layout import Layout, Rule, Weights, each, linear, tensor

NO_POSITIONS = 2
GLOBAL = (
    *linear("body.{a}.of.0.global_query", f"{bert.SELF}.query_global"),
    *linear("body.{a}.of.0.global_key_value", f"{bert.SELF}.key_global", f"{bert.SELF}.value_global"),
)
HEADS = (
    *linear("head.hidden.0", "lm_head.dense"),
    *linear("head.hidden.2", "lm_head.layer_norm"),
    *tensor("head.bias", "lm_head.bias"),
    *linear("head.hidden", "classifier.dense"),
    *linear("head", "classifier.out_proj"),
)


def _fields(weights: Weights) -> dict[str, Any]:
    own = {
        "learned.length": weights.rows(bert.POSITIONS) - NO_POSITIONS,
        "feed_forward.hidden": weights.rows(bert.INNER),
    }
    return bert.sizes(weights) | own | bert.head(weights, "lm_head.bias", "classifier.out_proj.weight")


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from (*bert.EMBEDDINGS, *HEADS)
    yield from tensor("position.table", bert.POSITIONS, make=lambda table: table[NO_POSITIONS:])
    yield from each((*bert.FUSED_ATTENTION, *GLOBAL, *bert.AROUND), weights.count("encoder.layer."))


LAYOUT = Layout(
    zoo=("longformer",),
    prefix="longformer.",
    fields=_fields,
    rules=_rules,
    head={"eps": "head_eps"},  # its activation is fixed
    left_out=(bert.BUFFERS, r"pooler\.dense\.(weight|bias)"),
    tied={"lm_head.decoder.weight": "embeddings.word_embeddings.weight", "lm_head.decoder.bias": "lm_head.bias"},
)
