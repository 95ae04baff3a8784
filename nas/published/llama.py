"""Hugging Face's Llama, https://github.com/huggingface/transformers: `models/llama/modeling_llama.py`.

Its rotary positions pair the two halves of a head, like `rotary: {layout: halves}`, so no rows are permuted. (Rows of
Meta's own files are.) The base of the positions and the epsilon of the norms are not in the weights: give `base` and
`eps`. Models with rescaled rotary positions for long texts are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nas.published.layout import Layout, Rule, Weights, each, linear, norm, tensor

OUTSIDE = (
    *tensor("embedding.table.weight", "embed_tokens.weight"),
    *tensor("embedding.output.weight", "lm_head.weight"),
    *norm("final_norm", "norm"),
)
SELF = "layers.{n}.self_attn"
LAYER = (
    *norm("body.{a}.norm", "layers.{n}.input_layernorm"),
    *linear("body.{a}.of.0.query", f"{SELF}.q_proj"),
    *linear("body.{a}.of.0.key_value", f"{SELF}.k_proj", f"{SELF}.v_proj"),
    *linear("body.{a}.of.0.output", f"{SELF}.o_proj"),
    *norm("body.{b}.norm", "layers.{n}.post_attention_layernorm"),
    *linear("body.{b}.of.0.inner", "layers.{n}.mlp.gate_proj", "layers.{n}.mlp.up_proj"),
    *linear("body.{b}.of.0.output", "layers.{n}.mlp.down_proj"),
)


def _fields(weights: Weights) -> dict[str, Any]:
    vocabulary, width = weights["embed_tokens.weight"].shape
    return {
        "width": width,
        "vocabulary": vocabulary,
        "times": weights.count("layers."),
        "gated_feed_forward.hidden": weights.rows("layers.0.mlp.gate_proj.weight"),
        "tie_embeddings": weights.is_tied("lm_head.weight", "embed_tokens.weight"),
    }


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    yield from each(LAYER, weights.count("layers."))


LAYOUT = Layout(
    zoo=("transformer_modern",),
    prefix="model.",
    fields=_fields,
    rules=_rules,
    left_out=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
    optional=(r"lm_head\.weight",),
    unread=("heads", "key_value_heads"),
)
