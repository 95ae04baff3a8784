"""An encoder: each position reads all others. It reads tokens or vectors and returns vectors, token logits or class
logits.

Formula: h = final_norm(body(input_norm(E x + positions))), logits = W head(pool(h)) or W head(h_t)

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, reads tokens; Dosovitskiy et al. 2021, "An Image is Worth
16x16 Words", https://arxiv.org/abs/2010.11929, reads patches of an image as vectors (see `patches`). B batch, T time, C
width, F features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from searchspace.backbones.embedding import (
    INITIAL_STD,
    SegmentEmbedding,
    Start,
    TokenEmbedding,
    features_part,
    segment_part,
    token_part,
)
from searchspace.backbones.entry import entered, name_paths, position_parts
from searchspace.backbones.head import EPS, Activation, ClassHead, Kind, TokenHead, class_parts, token_parts
from searchspace.backbones.initialisation import scale_residual_outputs
from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Cost, Shape
from searchspace.parts import PROBE, Composite, Part, after, check_lanes, check_lengths, check_uses, in_order
from searchspace.published import Published
from searchspace.registry import Blocks, Norm, Position, named, primitive
from searchspace.rotation import check_position


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Either `vocabulary` or `features` is given: the encoder reads tokens or vectors.

    `vocabulary`: number of tokens, if the encoder reads tokens.
    `features`: numbers per input vector, if the encoder reads vectors.
    `classes`: number of classes, if the encoder classifies.
    `tokens`: whether it predicts a token at every position; the output weights are those of the token embedding.
    `class_token`: whether a learned vector is added as position 0.
    `segments`: number of segment embeddings, which `Context.segments` selects; null for none.
    `embedding_start`: the initial standard deviation of the token embedding: 0.02 (small), or 1 / sqrt(C) (unit).
    `input_norm`: the norm after the embedding.
    `pool`: what the class is predicted from: the mean of all positions (mean), or the first position (first).
    `head`: how the logits are computed: by one linear map (linear), or with a hidden layer before it (hidden).
    `head_activation`: activation of the hidden layer before the token logits.
    `head_eps`: eps of the norm of the hidden layer before the token logits.
    `logits_bias`: whether the logits have a bias; token logits with a hidden layer always have one.

    Raises ValueError if the inputs or outputs contradict each other, an option has no effect on the chosen output, or
    the position encoding does not fit a block.
    """

    width: int
    vocabulary: int | None = None
    features: int | None = None
    classes: int | None = None
    tokens: bool = False
    class_token: bool = False
    segments: int | None = None
    position: Position = named("sinusoidal")
    scale_embedding: bool = True
    embedding_start: Start = "small"
    input_norm: Norm = named("none")
    dropout: float = 0.0
    body: Blocks
    final_norm: Norm = named("layer_norm")
    pool: Literal["mean", "first"] = "mean"
    head: Kind = "linear"
    head_activation: Activation = "gelu"
    head_eps: float = EPS
    logits_bias: bool = False

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary, features=self.features, classes=self.classes)
        at_least(1, segments=self.segments)
        probability(dropout=self.dropout)
        if (self.vocabulary is None) == (self.features is None):
            raise ValueError(
                "an encoder needs either vocabulary (it reads tokens) or features (it reads vectors), "
                f"but got vocabulary={self.vocabulary}, features={self.features}."
            )
        self._check_outputs()
        check_lengths(self.body)
        check_position(self.position, self.body, "body")
        check_lanes({"body": self.body})
        check_uses(self.body)

    def _check_outputs(self) -> None:
        if self.tokens and self.vocabulary is None:
            raise ValueError("tokens: true computes logits with the table of tokens, so it needs vocabulary.")
        if self.tokens and self.classes is not None:
            raise ValueError(
                "an encoder returns the logits of tokens or of classes, not both, "
                f"but got tokens: true and classes={self.classes}; leave one out."
            )
        if self.head == "hidden" and not self.tokens and self.classes is None:
            raise ValueError("head: hidden adds a layer before the logits, so it needs tokens: true or classes.")
        if not self.head_eps > 0:
            raise ValueError(f"head_eps must be above 0, but got head_eps={self.head_eps}.")
        if self.logits_bias and not self.tokens:
            raise ValueError("logits_bias is a bias of the token logits, so it needs tokens: true.")
        if self.tokens and after(self.body, PROBE).length != PROBE.length:
            raise ValueError(
                "tokens: true returns logits at every position, but the body has fewer output than input positions; "
                "give its hourglass a decoder, or leave tokens out."
            )


@primitive(
    "encoder",
    EncoderConfig,
    role="model",
    published=Published(code=("transformers",)),
)
class Encoder(Composite, nn.Module):
    """Embedding, body, final norm and an optional head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.input: Any
        if config.vocabulary is not None:
            self.input = TokenEmbedding(
                config.vocabulary, config.width, scale=config.scale_embedding, start=config.embedding_start
            )
        else:
            self.input = nn.Linear(config.features or 0, config.width)
        self.segments = None if config.segments is None else SegmentEmbedding(config.segments, config.width)
        self.first = nn.Parameter(INITIAL_STD * torch.randn(config.width)) if config.class_token else None
        self.position: Any = config.position.build()
        self.input_norm = config.input_norm.build()
        self.dropout = nn.Dropout(config.dropout)
        self.body = Stack(config.body)
        self.final_norm = config.final_norm.build()
        self.head = self._head()
        scale_residual_outputs(self.body)
        name_paths(self)

    def _head(self) -> Any:
        config, hidden = self.config, self.config.head == "hidden"
        if config.tokens:
            return TokenHead(
                config.vocabulary or 0,
                config.width,
                hidden=hidden,
                bias=config.logits_bias,
                activation=config.head_activation,
                eps=config.head_eps,
            )
        if config.classes is not None:
            return ClassHead(config.width, config.classes, hidden=hidden, dropout=config.dropout)
        return None

    def forward(self, inputs: Tensor, context: Context | None = None) -> Tensor:
        """inputs: [B, T] int64, or [B, T, F] -> [B, T, C]; with a class token [B, 1 + T, C].

        With `tokens`: logits [B, T, V] of every input. With `classes`: logits [B, classes]. Raises ValueError if the
        context is streaming.
        """
        if context is not None and context.streams is not None:
            raise ValueError("An encoder cannot read its input in pieces: every position reads all others.")
        front = int(self.first is not None)
        context = entered(context, inputs, self.position, front=front)
        x = self.position.embed(self._embedded(inputs, context.get("segments")), context.positions)
        x = self.dropout(self.input_norm(x, context))
        x = self.final_norm(self.body(x, context), context)
        if self.config.tokens:
            return self.head(x[:, front:], self.input)
        return x if self.head is None else self.head(self._pooled(x, context))

    def _embedded(self, inputs: Tensor, segments: Tensor | None) -> Tensor:
        """inputs: [B, T] or [B, T, F], segments: [B, T] or [B, 1 + T] -> [B, T, C] or [B, 1 + T, C]."""
        x = self.input(inputs)
        if self.segments is not None:
            x = self.segments(x, segments if segments is None else segments[:, -x.shape[1] :])
        if self.first is None:
            return x
        return torch.cat([self.first.to(x.dtype).expand(x.shape[0], 1, -1), x], dim=1)

    def _pooled(self, x: Tensor, context: Context) -> Tensor:
        return x[:, 0] if self.config.pool == "first" else mean_position(x, context.padding)

    @classmethod
    def given(cls, fields: Mapping[str, Any]) -> dict[str, Given]:
        return dict.fromkeys(("position", "input_norm", "body", "final_norm"), Given(dim=fields["width"], causal=False))

    @classmethod
    def parts(cls, config: EncoderConfig, shape: Shape) -> list[Part]:
        inner = replace(shape, length=shape.length + config.class_token)
        short = after(config.body, inner)
        return [
            *_input_parts(config, shape),
            *position_parts(config.position, config.dropout, config.width, inner, config.input_norm),
            *in_order("body", config.body, inner, whole=True),
            Part(name="final_norm", shape=short, block=config.final_norm),
            *_head_parts(config, shape),
        ]


def _input_parts(config: EncoderConfig, shape: Shape) -> list[Part]:
    if config.vocabulary is not None:
        parts = [token_part(config.vocabulary, config.width, shape)]
    else:
        parts = [features_part(config.features or 0, config.width, shape)]
    if config.segments is not None:
        parts.append(segment_part(config.segments, config.width, shape))
    if config.class_token:
        parts.append(Part(name="class_token", shape=replace(shape, length=1), own=Cost(parameters=config.width)))
    return parts


def _head_parts(config: EncoderConfig, shape: Shape) -> list[Part]:
    hidden = config.head == "hidden"
    if config.tokens:
        return token_parts(config.vocabulary or 0, config.width, shape, hidden=hidden, bias=config.logits_bias)
    if config.classes is None:
        return []
    one = replace(shape, length=1)
    return class_parts(config.classes, config.width, one, hidden=hidden, dropout=config.dropout)


def mean_position(x: Tensor, padding: Tensor | None) -> Tensor:
    """x: [B, T, C], padding: [B, T] or None -> [B, C], the mean over real positions; zeros if a sequence has none."""
    if padding is None:
        return x.mean(dim=1)
    real = padding.unsqueeze(-1).to(x.dtype)
    return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
