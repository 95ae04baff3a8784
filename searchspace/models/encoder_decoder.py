"""Sequence to sequence: a decoder that also sees the output of an encoder, its memory.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762; source, target and logits share one
table (section 3.4). The blocks of the decoder that look at the memory are those that say so, such as `attention` over
it. B batch, S source time, T target time, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Cost, Shape
from searchspace.models.embedding import TokenEmbedding, logits_part, token_part
from searchspace.models.entry import cannot_stream, entered, left, position_parts
from searchspace.models.initialisation import scale_residual_outputs
from searchspace.parts import Composite, Part, configured_below, in_order
from searchspace.registry import Blocks, Configured, Norm, Position, named, primitive


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    width: int
    vocabulary: int
    position: Position = named("sinusoidal")
    tie_embeddings: bool = True
    scale_embedding: bool = True
    dropout: float = 0.0
    encoder: Blocks
    encoder_norm: Norm = named("layer_norm")
    decoder: Blocks
    final_norm: Norm = named("layer_norm")

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary)
        probability(dropout=self.dropout)
        if not any(_reads_memory(block) for block in configured_below(self.decoder)):
            raise ValueError(
                "no block of the decoder reads the encoder's output, so the encoder would have no effect; "
                "give the decoder one that does, such as attention: {over: memory}."
            )


@primitive("encoder_decoder", EncoderDecoderConfig, role="model")
class EncoderDecoder(Composite, nn.Module):
    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(
            config.vocabulary, config.width, scale=config.scale_embedding, tied=config.tie_embeddings
        )
        self.position: Any = config.position.build()
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Stack(config.encoder)
        self.encoder_norm = config.encoder_norm.build()
        self.decoder = Stack(config.decoder)
        self.final_norm = config.final_norm.build()
        self.cannot_stream = cannot_stream(config.decoder)
        scale_residual_outputs(self.encoder)
        scale_residual_outputs(self.decoder)

    def forward(self, source: Tensor, target: Tensor, context: Context | None = None) -> Tensor:
        """source: [B, S], target: [B, T], int64 -> logits [B, T, V].

        `context.memory_padding` [B, S] is the padding of the source, `context.padding` that of the target.
        """
        context = Context() if context is None else context
        return self.decode(target, replace(context, memory=self.encode(source, context)))

    def encode(self, source: Tensor, context: Context | None = None) -> Tensor:
        """[B, S] -> the memory [B, S, C]; to stream, put it into `context.memory` once, then `decode` each piece."""
        outer = Context() if context is None else context
        inner = replace(outer, padding=outer.memory_padding, streams=None, memory=None, memory_padding=None)
        inner = entered(inner, source, self.position)
        return self.encoder_norm(self.encoder(self._embedded(source, inner), inner), inner)

    def decode(self, target: Tensor, context: Context) -> Tensor:
        """[B, T] -> logits [B, T, V], with the memory in `context`; raises ValueError where a block cannot stream."""
        if context.memory is None:
            raise ValueError("context.memory must hold the encoder's output: context.memory = model.encode(source).")
        context = entered(context, target, self.position)
        if context.streams is not None and self.cannot_stream:
            raise ValueError(f"This model cannot read its target in pieces: {', '.join(self.cannot_stream)} cannot.")
        x = self.decoder(self._embedded(target, context), context)
        x = self.final_norm(x, context)
        left(context)
        return self.embedding.logits(x)

    def _embedded(self, tokens: Tensor, context: Context) -> Tensor:
        return self.dropout(self.position.embed(self.embedding(tokens), context.positions))

    @classmethod
    def given(cls, fields: Mapping[str, Any]) -> dict[str, Given]:
        source = Given(dim=fields["width"], causal=False)
        target = Given(dim=fields["width"], causal=True, memory=True)
        return {
            "position": source,
            "encoder": source,
            "encoder_norm": source,
            "decoder": target,
            "final_norm": target,
        }

    @classmethod
    def parts(cls, config: EncoderDecoderConfig, shape: Shape) -> list[Part]:
        """`shape.memory` source positions, or as many as target positions when it is 0."""
        target = replace(shape, memory=shape.memory or shape.length)
        source = replace(shape, length=target.memory, memory=0)

        tokens = Cost(activation_bytes=source.rows * (8 + (config.width if config.dropout else 0)))
        return [
            token_part(config.vocabulary, config.width, target),
            Part(name="source", shape=source, own=tokens),  # its table and position are those of the target
            *position_parts(config.position, config.dropout, config.width, target),
            *in_order("encoder", config.encoder, source),
            Part(name="encoder_norm", shape=source, block=config.encoder_norm),
            *in_order("decoder", config.decoder, target),
            Part(name="final_norm", shape=target, block=config.final_norm),
            logits_part(config.vocabulary, config.width, target, tied=config.tie_embeddings),
        ]


def _reads_memory(block: Configured) -> bool:
    """Whether it attends to the memory: it can, and is not told (`over`) to read the sequence itself."""
    can = block.type.role == "block" and block.type.module.capabilities.cross
    return can and getattr(block.config, "over", "memory") == "memory"
