"""Models that transformers knows: their own configuration and weights, which need no remote code.

The rules that load public weights (`nas.published`) are inverted. The result counts only if loading it gives exactly
this architecture again, so a model that differs in one option is not taken for another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.errors import UsageError
from nas.exports.bundle.construction import blocks_of
from nas.exports.winner import Winner
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

AUTO_CLASS = "tessera_auto_class"  # in config.json, for the check
LENGTH = 4096  # positions of a model whose training length is unknown


@dataclass(frozen=True)
class Native:
    """config: the content of config.json. state: the weights under the names of transformers."""

    config: Mapping[str, Any]
    state: Mapping[str, Tensor]


def native(winner: Winner, state: Mapping[str, Tensor]) -> Native | None:
    """`winner` as a model of transformers; None if it is none of those that are known here (Llama)."""
    if winner.architecture.root.name != "decoder":
        return None
    length = dict(winner.origin.get("costs") or {}).get("length") or LENGTH
    return llama(winner.architecture, state, max(int(length), LENGTH))


def llama(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """A decoder as LlamaForCausalLM, or None if it is not exactly one."""
    from nas.published.layout import each
    from nas.published.llama import LAYER, OUTSIDE
    from nas.testing import published_architecture

    layers = len([name for name in state if re.fullmatch(r"body\.\d+\.of\.0\.query\.weight", name)])
    if not layers:
        return None
    waiting = dict(state)
    found: dict[str, Tensor] = {}
    for rule in [*OUTSIDE, *each(LAYER, layers)]:
        value = waiting.pop(rule.target, None)
        if value is not None:
            parts = value.chunk(len(rule.sources))
            found |= {_named(source): part.contiguous() for source, part in zip(rule.sources, parts, strict=True)}
    if waiting:
        return None
    root, blocks = architecture.configured.config, {each.type.name: each.config for each in blocks_of(architecture)}
    if not {"attention", "gated_feed_forward", "rms_norm", "rotary"} <= blocks.keys():
        return None
    attention, base, eps = blocks["attention"], blocks["rotary"].base, blocks["rms_norm"].eps
    options = {"heads": attention.heads, "key_value_heads": attention.key_value_heads, "base": base, "eps": eps}
    try:
        again = published_architecture("transformer_modern", found, "llama", **options)
    except (UsageError, SpaceError, ValueError):
        return None
    if again.hash != architecture.hash:
        return None
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        AUTO_CLASS: "AutoModelForCausalLM",
        "dtype": "float32",
        "vocab_size": root.vocabulary,
        "hidden_size": root.width,
        "intermediate_size": found["model.layers.0.mlp.gate_proj.weight"].shape[0],
        "num_hidden_layers": layers,
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.groups,
        "head_dim": root.width // attention.heads,
        "hidden_act": "silu",
        "rms_norm_eps": eps,
        "rope_theta": base,
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
        "max_position_embeddings": length,
        "tie_word_embeddings": root.tie_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "architecture": architecture.hash,
    }
    return Native(config, found)


def _named(source: str) -> str:
    return source if source.startswith("lm_head") else f"model.{source}"
