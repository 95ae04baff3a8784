"""Hugging Face's GPT-2, https://github.com/huggingface/transformers: `models/gpt2/modeling_gpt2.py`.

Its linear maps are stored transposed, because the released code used convolutions. One map holds queries, keys and
values. The attention masks that older files hold are ignored, as in the newest release.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from nas.published.layout import Layout, Make, Rule, Weights, each, hidden, norm, part, tensor

OUTSIDE = (
    *tensor("embedding.table.weight", "wte.weight"),
    *tensor("embedding.output.weight", "lm_head.weight"),
    *tensor("position.table", "wpe.weight"),
    *norm("final_norm", "ln_f"),
)


def _turned(target: str, source: str, make: Make = lambda source: source) -> tuple[Rule, ...]:
    def turned(weight: Tensor) -> Tensor:
        return make(weight.T)

    return (
        *tensor(f"{target}.weight", f"{source}.weight", make=turned),
        *tensor(f"{target}.bias", f"{source}.bias", make=make),
    )


LAYER = (
    *norm("body.{a}.norm", "h.{n}.ln_1"),
    *_turned("body.{a}.of.0.query", "h.{n}.attn.c_attn", part(3, 0)),
    *_turned("body.{a}.of.0.key_value", "h.{n}.attn.c_attn", part(3, 1, 2)),
    *_turned("body.{a}.of.0.output", "h.{n}.attn.c_proj"),
    *norm("body.{b}.norm", "h.{n}.ln_2"),
    *_turned("body.{b}.of.0.inner", "h.{n}.mlp.c_fc"),
    *_turned("body.{b}.of.0.output", "h.{n}.mlp.c_proj"),
)


def _fields(weights: Weights) -> dict[str, Any]:
    vocabulary, width = weights["wte.weight"].shape
    return {
        "width": width,
        "vocabulary": vocabulary,
        "learned.length": weights.rows("wpe.weight"),
        "times": weights.count("h."),
        **hidden(width, weights["h.0.mlp.c_fc.weight"].shape[1]),
        "tie_embeddings": weights.is_tied("lm_head.weight", "wte.weight"),
    }


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    yield from each(LAYER, weights.count("h."))


LAYOUT = Layout(
    zoo=("transformer_decoder",),
    prefix="transformer.",
    fields=_fields,
    rules=_rules,
    left_out=(r"h\.\d+\.attn\.(bias|masked_bias)",),
    optional=(r"lm_head\.weight",),
)
