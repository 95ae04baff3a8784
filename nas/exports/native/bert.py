"""An encoder of tokens as BertForMaskedLM, with classes as BertForSequenceClassification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nas.exports.native.inverse import AUTO_CLASS, Native, configs, is_again, layers, unstacked
from nas.published.bert import AROUND, ATTENTION, CLASSES, EMBEDDINGS, INNER, POSITIONS, TOKENS
from nas.published.layout import each, tensor
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
HEADS = ("cls.", "classifier.")  # names outside the encoder


def as_bert(architecture: Architecture, state: Mapping[str, Tensor], length: int) -> Native | None:
    """The model and its weights, or None if it is not exactly a BERT. Its length is that of the position table."""
    blocks, count = configs(architecture), layers(state)
    if not count or not {"attention", "feed_forward", "layer_norm", "learned", "residual"} <= blocks.keys():
        return None
    root, attention = architecture.configured.config, blocks["attention"]
    if not root.tokens and root.classes is None:  # it returns vectors
        return None
    outside = (*EMBEDDINGS, *tensor("position.table", POSITIONS), *(TOKENS if root.tokens else CLASSES))
    unstack = unstacked([*outside, *each((*ATTENTION, *AROUND), count)], state)
    activation = ACTIVATIONS.get(blocks["feed_forward"].activation)
    if unstack is None or activation is None or INNER not in unstack or POSITIONS not in unstack:
        return None
    found = {name if name.startswith(HEADS) else f"bert.{name}": value for name, value in unstack.items()}
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
        **_head(root),
        "model_type": "bert",
        "dtype": "float32",
        "vocab_size": root.vocabulary,
        "hidden_size": root.width,
        "num_hidden_layers": count,
        "num_attention_heads": attention.heads,
        "intermediate_size": unstack[INNER].shape[0],
        "hidden_act": activation,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": attention.dropout,
        "max_position_embeddings": unstack[POSITIONS].shape[0],
        "type_vocab_size": root.segments,
        "layer_norm_eps": eps,
        "tie_word_embeddings": True,
        "architecture": architecture.hash,
    }
    return Native(config, found)


def _head(root: Any) -> dict[str, Any]:
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
