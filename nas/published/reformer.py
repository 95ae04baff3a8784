"""Hugging Face's Reformer, https://github.com/huggingface/transformers: `models/reformer/modeling_reformer.py`.

All layers use hashed attention; models with layers that read a window (`local`) are not supported. There the hashing
matrices are drawn again at each call. So the numbers are equal if each position reads all others, that is in sequences
of one chunk, and beyond that if both draw the same hashes.

As released, keys are normalised with an epsilon, and scores are not divided by sqrt(D). This layout sets `key_eps` and
`scale: false`. The weights do not hold `chunk`, `rounds`, `buckets`, `factorised` and `eps`: give them as options.

There each head has its own hashing matrices, and a batch is padded until it fills its chunks, so that the first chunk
of a round may look back at padding. Here it looks back at real positions, so the numbers of padded batches are equal
with the option `padding: fills`, and those of own matrices with `head_rotations: true`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published.layout import Layout, Rule, Weights, each, hidden, linear, norm, tensor

AXES = "embeddings.position_embeddings.weights"
OUTSIDE = (
    *tensor("embedding.table.weight", "embeddings.word_embeddings.weight"),
    *tensor("embedding.output.weight", "lm_head.decoder.weight"),
    *tensor("embedding.bias", "lm_head.bias"),
    *tensor("position.rows", f"{AXES}.0", make=lambda rows: rows[:, 0]),
    *tensor("position.columns", f"{AXES}.1", make=lambda columns: columns[0]),
    *norm("final_norm", "encoder.layer_norm"),
)
SELF = "encoder.layers.{n}.attention.self_attention"
LAYER = (
    *norm("body.0.of.{a}.norm", "encoder.layers.{n}.attention.layer_norm"),
    *linear("body.0.of.{a}.of.0.query_value", f"{SELF}.query_key", f"{SELF}.value"),
    *linear("body.0.of.{a}.of.0.output", "encoder.layers.{n}.attention.output.dense"),
    *norm("body.0.of.{b}.norm", "encoder.layers.{n}.feed_forward.layer_norm"),
    *linear("body.0.of.{b}.of.0.inner", "encoder.layers.{n}.feed_forward.dense.dense"),
    *linear("body.0.of.{b}.of.0.output", "encoder.layers.{n}.feed_forward.output.dense"),
)
KEY_EPS = 1e-6


def _fields(weights: Weights) -> dict[str, Any]:
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    rows, columns = weights[f"{AXES}.0"], weights[f"{AXES}.1"]
    return {
        "width": width,
        "vocabulary": vocabulary,
        "axial.rows": rows.shape[0],
        "axial.columns": columns.shape[1],
        "axial.row_share": rows.shape[2] / width,
        "times": weights.count("encoder.layers."),
        **hidden(width, weights.rows("encoder.layers.0.feed_forward.dense.dense.weight")),
        "decoder.logits_bias": True,
        "lsh_attention.scale": False,
        "lsh_attention.key_eps": KEY_EPS,
    }


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    yield from each(LAYER, weights.count("encoder.layers."))


LAYOUT = Layout(
    zoo=("reformer",),
    prefix="reformer.",
    fields=_fields,
    rules=_rules,
    left_out=(r".*mask_value_float(16|32)",),
    tied={"lm_head.decoder.bias": "lm_head.bias"},
)
