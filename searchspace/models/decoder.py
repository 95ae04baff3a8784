"""A language model: each position sees itself and what came before it, and predicts what comes next.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", is the Transformer of this kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.models.embedding import TokenEmbedding, logits_part, token_part
from searchspace.models.entry import cannot_stream, entered, left, position_parts
from searchspace.models.initialisation import scale_residual_outputs
from searchspace.parts import Composite, Part, in_order
from searchspace.registry import Blocks, Norm, Position, named, primitive


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """`final_norm: none` suits bodies of post-norm blocks, which end with a norm of their own."""

    width: int
    vocabulary: int
    position: Position = named("sinusoidal")
    tie_embeddings: bool = True
    scale_embedding: bool = True
    dropout: float = 0.0
    body: Blocks
    final_norm: Norm = named("layer_norm")

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary)
        probability(dropout=self.dropout)


@primitive("decoder", DecoderConfig, role="model")
class Decoder(Composite, nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(
            config.vocabulary, config.width, scale=config.scale_embedding, tied=config.tie_embeddings
        )
        self.position: Any = config.position.build()
        self.dropout = nn.Dropout(config.dropout)
        self.body = Stack(config.body)
        self.final_norm = config.final_norm.build()
        self.cannot_stream = cannot_stream(config.body)
        scale_residual_outputs(self.body)

    def forward(self, tokens: Tensor, context: Context | None = None) -> Tensor:
        """tokens: [B, T] int64 -> logits [B, T, V].

        With `context.streams` the tokens are the next piece of a sequence. Raises ValueError where a block cannot
        stream.
        """
        context = entered(context, tokens, self.position)
        if context.streams is not None and self.cannot_stream:
            raise ValueError(f"This model cannot read its input in pieces: {', '.join(self.cannot_stream)} cannot.")
        x = self.dropout(self.position.embed(self.embedding(tokens), context.positions))
        x = self.final_norm(self.body(x, context), context)
        left(context)
        return self.embedding.logits(x)

    @classmethod
    def given(cls, fields: Mapping[str, Any]) -> dict[str, Given]:
        return dict.fromkeys(("position", "body", "final_norm"), Given(dim=fields["width"], causal=True))

    @classmethod
    def parts(cls, config: DecoderConfig, shape: Shape) -> list[Part]:
        return [
            token_part(config.vocabulary, config.width, shape),
            *position_parts(config.position, config.dropout, config.width, shape),
            *in_order("body", config.body, shape),
            Part(name="final_norm", shape=shape, block=config.final_norm),
            logits_part(config.vocabulary, config.width, shape, tied=config.tie_embeddings),
        ]
