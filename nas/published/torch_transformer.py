"""`torch.nn.Transformer`: https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.

That module maps vectors to vectors. Add the tables of the surrounding model to the state dict under these names:
`embedding.weight` for the target's tokens; if they are separate, `source_embedding.weight` and `output.weight` for the
logits. Both halves end with a norm. Its weights do not show pre-norm or another activation: give `order="pre"` or
`activation="gelu"`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published.layout import Layout, Rule, Weights, each, hidden, linear, norm, part, tensor
from searchspace.tree import Block

OUTSIDE = (
    *tensor("embedding.table.weight", "embedding.weight"),
    *tensor("embedding.output.weight", "output.weight"),
    *tensor("source.table.weight", "source_embedding.weight"),
    *norm("encoder_norm", "encoder.norm"),
    *norm("final_norm", "decoder.norm"),
)


def _attention(ours: str, theirs: str) -> tuple[Rule, ...]:
    projected = (
        rule
        for kind in ("weight", "bias")
        for rule in (
            *tensor(f"{ours}.query.{kind}", f"{theirs}.in_proj_{kind}", make=part(3, 0)),
            *tensor(f"{ours}.key_value.{kind}", f"{theirs}.in_proj_{kind}", make=part(3, 1, 2)),
        )
    )
    return (*projected, *linear(f"{ours}.output", f"{theirs}.out_proj"))


ENCODER = (
    *_attention("encoder.{a}.of.0", "encoder.layers.{n}.self_attn"),
    *norm("encoder.{a}.norm", "encoder.layers.{n}.norm1"),
    *linear("encoder.{b}.of.0.inner", "encoder.layers.{n}.linear1"),
    *linear("encoder.{b}.of.0.output", "encoder.layers.{n}.linear2"),
    *norm("encoder.{b}.norm", "encoder.layers.{n}.norm2"),
)
DECODER = (
    *_attention("decoder.{a}.of.0", "decoder.layers.{n}.self_attn"),
    *norm("decoder.{a}.norm", "decoder.layers.{n}.norm1"),
    *_attention("decoder.{b}.of.0", "decoder.layers.{n}.multihead_attn"),
    *norm("decoder.{b}.norm", "decoder.layers.{n}.norm2"),
    *linear("decoder.{c}.of.0.inner", "decoder.layers.{n}.linear1"),
    *linear("decoder.{c}.of.0.output", "decoder.layers.{n}.linear2"),
    *norm("decoder.{c}.norm", "decoder.layers.{n}.norm3"),
)


def _fields(weights: Weights) -> dict[str, Any]:
    vocabulary, width = weights["embedding.weight"].shape
    source = weights.rows("source_embedding.weight") if "source_embedding.weight" in weights else None
    return {
        "width": width,
        "vocabulary": vocabulary,
        "encoder_decoder.source_vocabulary": source,
        "tie_embeddings": weights.is_tied("output.weight", "embedding.weight"),
        **hidden(width, weights.rows("encoder.layers.0.linear1.weight")),
        "bias": "encoder.layers.0.linear1.bias" in weights,
    }


def _reshape(root: Block, weights: Weights) -> Block:
    """As many layers as the weights have, and the norms at the end."""
    fields: dict[str, Any] = dict(root.fields)
    for half in ("encoder", "decoder"):
        (repeat,) = fields[half]
        fields[half] = (Block("repeat", {**repeat.fields, "times": weights.count(f"{half}.layers.")}),)
    for ours, theirs in (("encoder_norm", "encoder.norm.weight"), ("final_norm", "decoder.norm.weight")):
        fields[ours] = Block("layer_norm", {"bias": True}) if theirs in weights else Block("none", {})
    return Block(root.name, fields)


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    yield from each(ENCODER, weights.count("encoder.layers."))
    yield from each(DECODER, weights.count("decoder.layers."), blocks=3)


LAYOUT = Layout(
    zoo=("transformer",),
    prefix="transformer.",
    fields=_fields,
    rules=_rules,
    reshape=_reshape,
    optional=(r"output\.weight",),
)
