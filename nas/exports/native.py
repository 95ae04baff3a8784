"""Models that transformers has: its own configuration and weights, which need no remote code.

The rules that load public weights (`nas.published`) are inverted. The result is used only if loading it gives exactly
this architecture again, so a model that differs in one option is not mistaken for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nas.errors import UsageError
from nas.exports.bundle import blocks_of
from nas.exports.winner import Winner
from nas.published import bert, llama
from nas.published.layout import Rule, each, tensor
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

AUTO_CLASS = "tessera_auto_class"  # in config.json, for the check
QUERY = re.compile(r"body\.\d+\.of\.0\.query\.weight")


@dataclass(frozen=True)
class Native:
    """config: the content of config.json. state: the weights under the names of transformers."""

    config: Mapping[str, Any]
    state: Mapping[str, Tensor]


def layers(state: Mapping[str, Tensor]) -> int:
    """The number of layers whose first block is attention with its own queries."""
    return sum(QUERY.fullmatch(name) is not None for name in state)


def configs(architecture: Architecture) -> dict[str, Any]:
    """One configuration of each kind of block in the model, by the block's name."""
    return {each.type.name: each.config for each in blocks_of(architecture)}


def unstacked(rules: Iterable[Rule], state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The sources of `rules` that stack whole weights; None if a parameter of `state` belongs to no rule,
    or has another size."""
    waiting, found = dict(state), dict[str, "Tensor"]()
    for rule in rules:
        value = waiting.pop(rule.target, None)
        if value is not None:
            if len(value) % len(rule.sources):
                return None
            parts = value.chunk(len(rule.sources))
            found |= {source: part.contiguous() for source, part in zip(rule.sources, parts, strict=True)}
    return None if waiting else found


def is_again(
    architecture: Architecture, zoo_name: str, layout: str, state: Mapping[str, Tensor], options: Mapping[str, Any]
) -> bool:
    """Whether loading the weights `state` gives exactly `architecture`."""
    from nas.testing import published_architecture

    try:
        return published_architecture(zoo_name, state, layout, **options).hash == architecture.hash
    except (UsageError, SpaceError, ValueError):
        return False


LLAMA_LENGTH = 4096  # positions of a model whose training length is unknown or shorter


def as_llama(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """The model and its weights, or None if it is not exactly a Llama. length: the training length; 0 if unknown."""
    count = layers(state)
    unstack = unstacked([*llama.OUTSIDE, *each(llama.LAYER, count)], state) if count else None
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
        "max_position_embeddings": max(length, LLAMA_LENGTH),
        "tie_word_embeddings": root.tie_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "architecture": architecture.hash,
    }
    return Native(config, found)


GPT2_ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
GPT2_OUTSIDE = {
    "embedding.table.weight": "wte.weight",
    "embedding.output.weight": "lm_head.weight",
    "position.table": "wpe.weight",
    "final_norm.gain": "ln_f.weight",
    "final_norm.bias": "ln_f.bias",
}
GPT2_NORMS = {
    "{a}.norm.gain": "ln_1.weight",
    "{a}.norm.bias": "ln_1.bias",
    "{b}.norm.gain": "ln_2.weight",
    "{b}.norm.bias": "ln_2.bias",
}
GPT2_LINEAR = {
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
    found = _gpt2_weights(state, count)
    activation = GPT2_ACTIVATIONS.get(blocks["feed_forward"].activation)
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


def _gpt2_weights(state: Mapping[str, Tensor], count: int) -> dict[str, Tensor] | None:
    """The weights under the names of transformers; None unless each parameter of ours has one."""
    waiting = dict(state)
    found = {theirs: waiting.pop(ours) for ours, theirs in GPT2_OUTSIDE.items() if ours in waiting}
    try:
        for n in range(count):
            found |= _gpt2_layer(waiting, n)
    except KeyError:
        return None
    if waiting:
        return None
    return {name if name.startswith("lm_head") else f"transformer.{name}": value for name, value in found.items()}


def _gpt2_layer(waiting: dict[str, Tensor], n: int) -> dict[str, Tensor]:
    """The weights of layer `n`, which are taken from `waiting`. Raises KeyError for a missing one."""

    def take(name: str) -> Tensor:
        return waiting.pop("body." + name.format(a=2 * n, b=2 * n + 1))

    found = {f"h.{n}.{theirs}": take(ours) for ours, theirs in GPT2_NORMS.items()}
    for maps, theirs in GPT2_LINEAR.items():
        found[f"h.{n}.{theirs}.weight"] = torch.cat([take(f"{each}.weight") for each in maps]).T.contiguous()
        found[f"h.{n}.{theirs}.bias"] = torch.cat([take(f"{each}.bias") for each in maps])
    return found


BERT_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
BERT_HEADS = ("cls.", "classifier.")  # names outside the encoder


def as_bert(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """The model and its weights, or None if it is not exactly a BERT. Its length is that of the position table."""
    blocks, count = configs(architecture), layers(state)
    if not count or not {"attention", "feed_forward", "layer_norm", "learned", "residual"} <= blocks.keys():
        return None
    root, attention = architecture.configured.config, blocks["attention"]
    if not root.tokens and root.classes is None:  # it returns vectors
        return None
    outside = (
        *bert.EMBEDDINGS,
        *tensor("position.table", bert.POSITIONS),
        *(bert.TOKENS if root.tokens else bert.CLASSES),
    )
    unstack = unstacked([*outside, *each((*bert.ATTENTION, *bert.AROUND), count)], state)
    activation = BERT_ACTIVATIONS.get(blocks["feed_forward"].activation)
    if unstack is None or activation is None or bert.INNER not in unstack or bert.POSITIONS not in unstack:
        return None
    found = {name if name.startswith(BERT_HEADS) else f"bert.{name}": value for name, value in unstack.items()}
    eps, dropout = blocks["layer_norm"].eps, blocks["residual"].dropout
    options = {
        "heads": attention.heads,
        "eps": eps,
        "feed_forward.activation": blocks["feed_forward"].activation,
        "encoder.dropout": dropout,
        "residual.dropout": dropout,
        "attention.dropout": attention.dropout,
    }
    if not is_again(architecture, "transformer_encoder", "bert", found, options):
        return None
    config = {
        **_bert_head(root),
        "model_type": "bert",
        "dtype": "float32",
        "vocab_size": root.vocabulary,
        "hidden_size": root.width,
        "num_hidden_layers": count,
        "num_attention_heads": attention.heads,
        "intermediate_size": unstack[bert.INNER].shape[0],
        "hidden_act": activation,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": attention.dropout,
        "max_position_embeddings": unstack[bert.POSITIONS].shape[0],
        "type_vocab_size": root.segments,
        "layer_norm_eps": eps,
        "tie_word_embeddings": True,
        "architecture": architecture.hash,
    }
    return Native(config, found)


def _bert_head(root: Any) -> dict[str, Any]:
    """What the model returns."""
    if root.tokens:
        return {"architectures": ["BertForMaskedLM"], AUTO_CLASS: "AutoModelForMaskedLM"}
    classes = {"num_labels": root.classes, "id2label": {str(n): f"LABEL_{n}" for n in range(root.classes or 0)}}
    return {
        "architectures": ["BertForSequenceClassification"],
        AUTO_CLASS: "AutoModelForSequenceClassification",
        **classes,
        "classifier_dropout": 0.0,
    }


Known = Callable[[Architecture, Mapping[str, "Tensor"], int], Native | None]
KNOWN: dict[str, tuple[Known, ...]] = {"decoder": (as_llama, as_gpt2), "encoder": (as_bert,)}  # by the outermost block


def native(winner: Winner, state: Mapping[str, Tensor]) -> Native | None:
    """`winner` as a model of transformers; None if it is not exactly one of them."""
    length = dict(winner.origin.get("costs") or {}).get("length") or 0
    for known in KNOWN.get(winner.architecture.root.name, ()):
        if (found := known(winner.architecture, state, int(length))) is not None:
            return found
    return None
