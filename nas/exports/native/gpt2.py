"""A decoder as GPT2LMHeadModel. Its linear maps are stored transposed, with queries, keys and values in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from nas.exports.native.inverse import AUTO_CLASS, Native, configs, is_again, layers
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
OUTSIDE = {
    "embedding.table.weight": "wte.weight",
    "embedding.output.weight": "lm_head.weight",
    "position.table": "wpe.weight",
    "final_norm.gain": "ln_f.weight",
    "final_norm.bias": "ln_f.bias",
}
NORMS = {
    "{a}.norm.gain": "ln_1.weight",
    "{a}.norm.bias": "ln_1.bias",
    "{b}.norm.gain": "ln_2.weight",
    "{b}.norm.bias": "ln_2.bias",
}
LINEAR = {
    ("{a}.of.0.query", "{a}.of.0.key_value"): "attn.c_attn",
    ("{a}.of.0.output",): "attn.c_proj",
    ("{b}.of.0.inner",): "mlp.c_fc",
    ("{b}.of.0.output",): "mlp.c_proj",
}


def as_gpt2(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """The model and its weights, or None if it is not exactly a GPT-2. Its length is that of the position table."""
    blocks, count = configs(architecture), layers(state)
    if not count or not {"attention", "feed_forward", "layer_norm", "learned", "residual"} <= blocks.keys():
        return None
    found = _weights(state, count)
    activation = ACTIVATIONS.get(blocks["feed_forward"].activation)
    if found is None or activation is None:
        return None
    root, attention, eps = architecture.configured.config, blocks["attention"], blocks["layer_norm"].eps
    options = {
        "heads": attention.heads,
        "eps": eps,
        "feed_forward.activation": blocks["feed_forward"].activation,
        "decoder.dropout": root.dropout,
        "residual.dropout": blocks["residual"].dropout,
        "attention.dropout": attention.dropout,
    }
    if not is_again(architecture, "transformer_decoder", "gpt2", found, options):
        return None
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        AUTO_CLASS: "AutoModelForCausalLM",
        "dtype": "float32",
        "vocab_size": root.vocabulary,
        "n_embd": root.width,
        "n_layer": count,
        "n_head": attention.heads,
        "n_inner": found["transformer.h.0.mlp.c_fc.bias"].shape[0],
        "n_positions": found["transformer.wpe.weight"].shape[0],
        "activation_function": activation,
        "layer_norm_epsilon": eps,
        "embd_pdrop": root.dropout,
        "resid_pdrop": blocks["residual"].dropout,
        "attn_pdrop": attention.dropout,
        "tie_word_embeddings": root.tie_embeddings,
        "architecture": architecture.hash,
    }
    return Native(config, found)


def _weights(state: Mapping[str, Tensor], count: int) -> dict[str, Tensor] | None:
    """The weights under the names of transformers; None unless each parameter of ours has one."""
    waiting = dict(state)
    found = {theirs: waiting.pop(ours) for ours, theirs in OUTSIDE.items() if ours in waiting}
    try:
        for n in range(count):
            found |= _layer(waiting, n)
    except KeyError:
        return None
    if waiting:
        return None
    return {name if name.startswith("lm_head") else f"transformer.{name}": value for name, value in found.items()}


def _layer(waiting: dict[str, Tensor], n: int) -> dict[str, Tensor]:
    """The weights of layer `n`, which are taken from `waiting`. Raises KeyError for a missing one."""

    def take(name: str) -> Tensor:
        return waiting.pop("body." + name.format(a=2 * n, b=2 * n + 1))

    found = {f"h.{n}.{theirs}": take(ours) for ours, theirs in NORMS.items()}
    for maps, theirs in LINEAR.items():
        found[f"h.{n}.{theirs}.weight"] = torch.cat([take(f"{each}.weight") for each in maps]).T.contiguous()
        found[f"h.{n}.{theirs}.bias"] = torch.cat([take(f"{each}.bias") for each in maps])
    return found
