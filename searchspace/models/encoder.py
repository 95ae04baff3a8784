"""An encoder: every position sees all others. It reads tokens or vectors, and gives vectors, token or class logits.

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, reads tokens; Dosovitskiy et al. 2021, "An Image is Worth
16x16 Words", https://arxiv.org/abs/2010.11929, reads patches of an image as vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Shape, linear
from searchspace.models.embedding import INITIAL_STD, TokenEmbedding, features_part, logits_part, token_part
from searchspace.models.entry import entered, position_parts
from searchspace.models.initialisation import scale_residual_outputs
from searchspace.parts import Composite, Part, in_order
from searchspace.registry import Blocks, Norm, Position, named, primitive


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Either `vocabulary` (it reads tokens) or `features` (it reads vectors of so many numbers).

    `tokens`: it gives the logits of a token at every position, by the table that it reads them with.
    """

    width: int
    vocabulary: int | None = None
    features: int | None = None
    classes: int | None = None
    tokens: bool = False
    position: Position = named("sinusoidal")
    scale_embedding: bool = True
    dropout: float = 0.0
    body: Blocks
    final_norm: Norm = named("layer_norm")

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary, features=self.features, classes=self.classes)
        probability(dropout=self.dropout)
        if (self.vocabulary is None) == (self.features is None):
            raise ValueError(
                "an encoder needs either vocabulary (it reads tokens) or features (it reads vectors), "
                f"but got vocabulary={self.vocabulary}, features={self.features}."
            )
        if self.tokens and self.vocabulary is None:
            raise ValueError("tokens: true gives logits by the table of tokens, so it needs vocabulary, not features.")
        if self.tokens and self.classes is not None:
            raise ValueError(
                "an encoder gives the logits of tokens or of classes, "
                f"but got tokens: true and classes={self.classes}; leave one out."
            )


@primitive("encoder", EncoderConfig, role="model")
class Encoder(Composite, nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.input: Any
        if config.vocabulary is not None:
            self.input = TokenEmbedding(config.vocabulary, config.width, scale=config.scale_embedding)
        else:
            self.input = nn.Linear(config.features or 0, config.width)
        self.tokens = config.tokens
        self.position: Any = config.position.build()
        self.dropout = nn.Dropout(config.dropout)
        self.body = Stack(config.body)
        self.final_norm = config.final_norm.build()
        self.head = None if config.classes is None else nn.Linear(config.width, config.classes)
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=INITIAL_STD)
            nn.init.zeros_(self.head.bias)
        scale_residual_outputs(self.body)

    def forward(self, inputs: Tensor, context: Context | None = None) -> Tensor:
        """inputs: [B, T] int64, or [B, T, F] -> [B, T, C].

        With `tokens`, logits [B, T, V] of every position; with `classes`, logits [B, classes] of the mean.
        """
        if context is not None and context.streams is not None:
            raise ValueError("An encoder cannot read its input in pieces: every position sees all others.")
        context = entered(context, inputs, self.position)
        x = self.dropout(self.position.embed(self.input(inputs), context.positions))
        x = self.final_norm(self.body(x, context), context)
        if self.tokens:
            return self.input.logits(x)
        return x if self.head is None else self.head(mean_position(x, context.padding))

    @classmethod
    def given(cls, fields: Mapping[str, Any]) -> dict[str, Given]:
        return dict.fromkeys(("position", "body", "final_norm"), Given(dim=fields["width"], causal=False))

    @classmethod
    def parts(cls, config: EncoderConfig, shape: Shape) -> list[Part]:
        if config.vocabulary is not None:
            entry = token_part(config.vocabulary, config.width, shape)
        else:
            entry = features_part(config.features or 0, config.width, shape)
        parts = [
            entry,
            *position_parts(config.position, config.dropout, config.width, shape),
            *in_order("body", config.body, shape),
            Part(name="final_norm", shape=shape, block=config.final_norm),
        ]
        if config.tokens:
            parts.append(logits_part(config.vocabulary or 0, config.width, shape, tied=True))
        if config.classes is not None:
            one = replace(shape, length=1)
            own = linear(one, config.width, config.classes)
            parts.append(Part(name="head", shape=one, own=own, width=config.classes))
        return parts


def mean_position(x: Tensor, padding: Tensor | None) -> Tensor:
    """[B, T, C] -> [B, C], the mean over real positions; zeros where a sequence has none."""
    if padding is None:
        return x.mean(dim=1)
    real = padding.unsqueeze(-1).to(x.dtype)
    return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
