"""Hugging Face's BERT, https://github.com/huggingface/transformers: `models/bert/modeling_bert.py`.

Other models use the same encoder of tokens, so other layouts use the tables here. With a head for masked words the
model returns the logits of tokens. With a classifier it returns classes, and the pooler is the classifier's hidden
layer. Without a head it returns the last hidden states. A pooler next to another head and the head for the next
sentence are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published.layout import Layout, Rule, Weights, each, hidden, linear, norm, tensor

EMBEDDINGS = (
    *tensor("input.table.weight", "embeddings.word_embeddings.weight"),
    *tensor("segments.table", "embeddings.token_type_embeddings.weight"),
    *norm("input_norm", "embeddings.LayerNorm"),
)
SELF = "encoder.layer.{n}.attention.self"
ATTENTION = (
    *linear("body.{a}.of.0.query", f"{SELF}.query"),
    *linear("body.{a}.of.0.key_value", f"{SELF}.key", f"{SELF}.value"),
)
FUSED_ATTENTION = linear("body.{a}.of.0.query_key_value", f"{SELF}.query", f"{SELF}.key", f"{SELF}.value")
AROUND = (
    *linear("body.{a}.of.0.output", "encoder.layer.{n}.attention.output.dense"),
    *norm("body.{a}.norm", "encoder.layer.{n}.attention.output.LayerNorm"),
    *linear("body.{b}.of.0.inner", "encoder.layer.{n}.intermediate.dense"),
    *linear("body.{b}.of.0.output", "encoder.layer.{n}.output.dense"),
    *norm("body.{b}.norm", "encoder.layer.{n}.output.LayerNorm"),
)
TOKENS = (
    *linear("head.hidden.0", "cls.predictions.transform.dense"),
    *linear("head.hidden.2", "cls.predictions.transform.LayerNorm"),
    *tensor("head.bias", "cls.predictions.bias"),
)
CLASSES = (*linear("head.hidden", "pooler.dense"), *linear("head", "classifier"))
INNER = "encoder.layer.0.intermediate.dense.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# names of the first release; the published files still use them
RENAMED = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
BUFFERS = r"embeddings\.(position|token_type)_ids"
NEXT_SENTENCE = r"cls\.seq_relationship\.(weight|bias)"


def sizes(weights: Weights) -> dict[str, Any]:
    """The sizes of the encoder that the shapes determine, without its positions."""
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    return {
        "width": width,
        "vocabulary": vocabulary,
        "encoder.segments": weights.rows("embeddings.token_type_embeddings.weight"),
        "times": weights.count("encoder.layer."),
    }


def head(weights: Weights, tokens: str, classes: str = "") -> dict[str, Any]:
    """What the model returns, from the head whose weight exists: `tokens`, `classes` or neither."""
    if tokens in weights:
        return {"encoder.tokens": True, "encoder.classes": None, "encoder.head": "hidden"}
    if classes not in weights:
        return {"encoder.tokens": False, "encoder.classes": None, "encoder.head": "linear"}
    return {
        "encoder.tokens": False,
        "encoder.classes": weights.rows(classes),
        "encoder.pool": "first",
        "encoder.head": "hidden",
    }


def _fields(weights: Weights) -> dict[str, Any]:
    fields = sizes(weights)
    fields |= hidden(fields["width"], weights.rows(INNER)) | {"learned.length": weights.rows(POSITIONS)}
    return fields | head(weights, "cls.predictions.bias", "classifier.weight")


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from (*EMBEDDINGS, *tensor("position.table", POSITIONS), *TOKENS, *CLASSES)
    yield from each((*ATTENTION, *AROUND), weights.count("encoder.layer."))


LAYOUT = Layout(
    zoo=("transformer_encoder",),
    prefix="bert.",
    fields=_fields,
    rules=_rules,
    left_out=(BUFFERS, NEXT_SENTENCE),
    tied=TIED,
    renamed=RENAMED,
    optional=(r"pooler\.dense\.(weight|bias)",),
)
