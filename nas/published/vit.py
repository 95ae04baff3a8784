"""Hugging Face's Vision Transformer, https://github.com/huggingface/transformers: `models/vit/modeling_vit.py`.

Its convolution over patches is the linear map of `searchspace.backbones.patches`. Without a classifier the model
returns the last hidden states. A pooler is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nas.published.layout import Layout, Rename, Rule, Weights, each, hidden, linear, norm, tensor

PATCHES = "embeddings.patch_embeddings.projection"
OUTSIDE = (
    *tensor("first", "embeddings.cls_token", make=lambda token: token.flatten()),
    *tensor("position.table", "embeddings.position_embeddings", make=lambda table: table.flatten(0, 1)),
    *linear("input", PATCHES, make=lambda kernel: kernel.flatten(1) if kernel.dim() > 1 else kernel),
    *norm("final_norm", "layernorm"),
    *linear("head", "classifier"),
)
SELF = "layers.{n}.attention"
LAYER = (
    *norm("body.{a}.norm", "layers.{n}.layernorm_before"),
    *linear("body.{a}.of.0.query", f"{SELF}.q_proj"),
    *linear("body.{a}.of.0.key_value", f"{SELF}.k_proj", f"{SELF}.v_proj"),
    *linear("body.{a}.of.0.output", f"{SELF}.o_proj"),
    *norm("body.{b}.norm", "layers.{n}.layernorm_after"),
    *linear("body.{b}.of.0.inner", "layers.{n}.mlp.fc1"),
    *linear("body.{b}.of.0.output", "layers.{n}.mlp.fc2"),
)
# names in the published files, which older releases wrote
RENAMED: Mapping[str, Rename] = {
    r"^encoder\.layer\.": "layers.",
    r"\.attention\.attention\.(query|key|value)\.": lambda found: f".attention.{found[1][0]}_proj.",
    r"\.attention\.output\.dense\.": ".attention.o_proj.",
    r"\.intermediate\.dense\.": ".mlp.fc1.",
    r"(?<!attention)\.output\.dense\.": ".mlp.fc2.",
}


def _fields(weights: Weights) -> dict[str, Any]:
    classes = weights.rows("classifier.weight") if "classifier.weight" in weights else None
    width = weights.rows(f"{PATCHES}.weight")
    return {
        "width": width,
        "features": weights[f"{PATCHES}.weight"][0].numel(),
        "learned.length": weights["embeddings.position_embeddings"].shape[1],
        "times": weights.count("layers."),
        **hidden(width, weights.rows("layers.0.mlp.fc1.weight")),
        "encoder.classes": classes,
    }


def _rules(weights: Weights) -> Iterator[Rule]:
    yield from OUTSIDE
    yield from each(LAYER, weights.count("layers."))


LAYOUT = Layout(
    zoo=("vit",),
    prefix="vit.",
    fields=_fields,
    rules=_rules,
    left_out=(r"pooler\.dense\.(weight|bias)",),
    renamed=RENAMED,
)
