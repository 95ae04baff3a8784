"""Hugging Face's Funnel-Transformer, https://github.com/huggingface/transformers: `models/funnel/modeling_funnel.py`.

There [CLS] is a normal token, so the loaded model has no class token of its own: the first token of its input is [CLS],
with segment -1. Padding is pooled as it is there (`pool_padding`, which this layout sets). Here two positions are
pooled as well; there they are not pooled further. Layers that are used twice are those of `funnel_shared`. A decoder is
read if the architecture has one (`funnel_decoder`), and so is the head of its logits. The head that tells real from
replaced tokens is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from nas.published.layout import Layout, Rule, Weights, each, hidden, linear, norm, tensor
from searchspace.tree import Block

OUTSIDE = (
    *tensor("input.table.weight", "embeddings.word_embeddings.weight"),
    *norm("input_norm", "embeddings.layer_norm"),
    *tensor("head.bias", "lm_head.bias"),
    *linear("head.hidden", "classifier.linear_hidden"),
    *linear("head", "classifier.linear_out"),
)


def _rows(bias: Tensor) -> Tensor:
    return bias[:, None]


# {ours} and {theirs}: the prefix of a layer's names
LAYER = (
    *tensor("{ours}.{a}.of.0.content_bias", "{theirs}.{n}.attention.r_w_bias", make=_rows),
    *tensor("{ours}.{a}.of.0.distance_bias", "{theirs}.{n}.attention.r_r_bias", make=_rows),
    *tensor("{ours}.{a}.of.0.segment_bias", "{theirs}.{n}.attention.r_s_bias", make=_rows),
    *tensor("{ours}.{a}.of.0.segment", "{theirs}.{n}.attention.seg_embed"),
    *tensor("{ours}.{a}.of.0.distance.weight", "{theirs}.{n}.attention.r_kernel", make=lambda r: r.flatten(1).T),
    *linear("{ours}.{a}.of.0.query", "{theirs}.{n}.attention.q_head"),
    *linear("{ours}.{a}.of.0.key_value", "{theirs}.{n}.attention.k_head", "{theirs}.{n}.attention.v_head"),
    *linear("{ours}.{a}.of.0.output", "{theirs}.{n}.attention.post_proj"),
    *norm("{ours}.{a}.norm", "{theirs}.{n}.attention.layer_norm"),
    *linear("{ours}.{b}.of.0.inner", "{theirs}.{n}.ffn.linear_1"),
    *linear("{ours}.{b}.of.0.output", "{theirs}.{n}.ffn.linear_2"),
    *norm("{ours}.{b}.norm", "{theirs}.{n}.ffn.layer_norm"),
)
# layers that are used twice: each is in its own repeat
TWICE = tuple(
    Rule(rule.target.replace("{a}", "{n}.of.0.0").replace("{b}", "{n}.of.0.1"), rule.sources, rule.make)
    for rule in LAYER
)


def _fields(weights: Weights) -> dict[str, Any]:
    vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
    classes = weights.rows("classifier.linear_out.weight") if "classifier.linear_out.weight" in weights else None
    tokens = "lm_head.bias" in weights
    return {
        "width": width,
        "vocabulary": vocabulary,
        "heads": weights.rows("encoder.blocks.0.0.attention.r_w_bias"),
        **hidden(width, weights.rows("encoder.blocks.0.0.ffn.linear_1.weight")),
        "hourglass.pool_padding": True,
        "encoder.class_token": False,
        "encoder.tokens": tokens,
        "encoder.logits_bias": tokens,
        "encoder.classes": classes,
        "encoder.pool": "first",
        "encoder.head": "linear" if classes is None else "hidden",
    }


def _reshape(root: Block, weights: Weights) -> Block:
    """The stages, the layers of each stage and the layers of the decoder, as many as the weights have."""
    body: Any = root.fields["body"]
    stages = body[0].fields["stages"]
    if len(stages) != (count := weights.count("encoder.blocks.")):
        raise ValueError(f"the weights have {count} stages, but the architecture has {len(stages)}.")
    fields = dict(body[0].fields)
    fields["stages"] = tuple(
        (Block("repeat", {**stage[0].fields, "times": weights.count(f"encoder.blocks.{s}.")}),)
        for s, stage in enumerate(stages)
    )
    if layer := fields["decoder"][:2]:
        fields["decoder"] = layer * weights.count("decoder.layers.")
    return Block(root.name, {**root.fields, "body": (Block("hourglass", fields),)})


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    for stage in range(weights.count("encoder.blocks.")):
        names = {"ours": f"body.0.stages.{stage}", "theirs": f"encoder.blocks.{stage}"}
        for rules in (LAYER, TWICE):
            yield from each(rules, weights.count(f"encoder.blocks.{stage}."), names=names)
    if "decoder.layers.0.attention.r_w_bias" in weights:
        names = {"ours": "body.0.decoder", "theirs": "decoder.layers"}
        yield from each(LAYER, weights.count("decoder.layers."), names=names)


LAYOUT = Layout(
    zoo=("funnel", "funnel_decoder", "funnel_shared"),
    prefix="funnel.",
    fields=_fields,
    rules=_rules,
    reshape=_reshape,
    left_out=(r"discriminator_predictions\..*",),
    tied={"lm_head.weight": "embeddings.word_embeddings.weight"},
    unread=(),
)
