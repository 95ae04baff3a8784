"""A decoder as LlamaForCausalLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from nas.exports.native.inverse import AUTO_CLASS, Native, configs, is_again, layers, unstacked
from nas.published.layout import each
from nas.published.llama import LAYER, OUTSIDE
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

LENGTH = 4096  # positions of a model whose training length is unknown or shorter


def as_llama(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """The model and its weights, or None if it is not exactly a Llama. length: the training length; 0 if unknown."""
    count = layers(state)
    unstack = unstacked([*OUTSIDE, *each(LAYER, count)], state) if count else None
    blocks = configs(architecture)
    if unstack is None or not {"attention", "gated_feed_forward", "rms_norm", "rotary"} <= blocks.keys():
        return None
    found = {name if name.startswith("lm_head") else f"model.{name}": value for name, value in unstack.items()}
    root, attention = architecture.configured.config, blocks["attention"]
    base, eps = blocks["rotary"].base, blocks["rms_norm"].eps
    options = {"heads": attention.heads, "key_value_heads": attention.key_value_heads, "base": base, "eps": eps}
    if not is_again(architecture, "transformer_modern", "llama", found, options):
        return None
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        AUTO_CLASS: "AutoModelForCausalLM",
        "dtype": "float32",
        "vocab_size": root.vocabulary,
        "hidden_size": root.width,
        "intermediate_size": found["model.layers.0.mlp.gate_proj.weight"].shape[0],
        "num_hidden_layers": count,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.groups,
        "head_dim": root.width // attention.heads,
        "hidden_act": "silu",
        "rms_norm_eps": eps,
        "rope_theta": base,
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "max_position_embeddings": max(length, LENGTH),
        "tie_word_embeddings": root.tie_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "architecture": architecture.hash,
    }
    return Native(config, found)
