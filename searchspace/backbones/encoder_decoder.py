"""Sequence to sequence: a decoder that also reads the output of an encoder, its memory.

Formula: m = encoder_norm(encoder(E x)), p(y_{t+1} | y_1 .. y_t, x) = softmax(final_norm(decoder(E y, m))_t E^T)

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762. Source, target and logits share one
table (section 3.4), unless `source_vocabulary` gives the source its own table. Blocks of the decoder read the memory if
they are configured to, such as `attention: {over: memory}`. Recurrent blocks can start from the encoder's final states
(see `handover`). B batch, S source time, T target time, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from searchspace.backbones.embedding import Start, TokenEmbedding, logits_part, token_part
from searchspace.backbones.entry import cannot_stream, entered, left, name_paths, position_parts
from searchspace.backbones.handover import check_nothing_is_lost, handed_over
from searchspace.backbones.initialisation import scale_residual_outputs
from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Cost, Shape
from searchspace.parts import (
    PROBE,
    Composite,
    Part,
    after,
    check_lanes,
    check_lengths,
    check_uses,
    configured_below,
    in_order,
)
from searchspace.primitives.recurrence.directions import FINAL
from searchspace.published import Published
from searchspace.registry import Blocks, Configured, Norm, Position, named, primitive
from searchspace.rotation import check_position


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig:
    """`source_vocabulary`: number of source tokens, if the source has its own table; null shares the table of the
    target.
    `embedding_start`: the initial standard deviation of the token embedding: 0.02 (small), or 1 / sqrt(C) (unit).
    `encoder`: the blocks of the encoder.
    `encoder_norm`: the norm after the encoder.
    `decoder`: the blocks of the decoder.

    Raises ValueError if a vocabulary is empty, the encoder shortens the source, the decoder does not use the encoder,
    the states handed over do not match, or the position encoding does not fit a block.
    """

    width: int
    vocabulary: int
    source_vocabulary: int | None = None
    position: Position = named("sinusoidal")
    tie_embeddings: bool = True
    scale_embedding: bool = True
    embedding_start: Start = "small"
    dropout: float = 0.0
    encoder: Blocks
    encoder_norm: Norm = named("layer_norm")
    decoder: Blocks
    final_norm: Norm = named("layer_norm")

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary, source_vocabulary=self.source_vocabulary)
        probability(dropout=self.dropout)
        check_lengths(self.encoder)
        check_position(self.position, self.encoder, "encoder")
        check_position(self.position, self.decoder, "decoder")
        if after(self.encoder, PROBE).length != PROBE.length:
            raise ValueError(
                "the encoder has fewer output positions than the source, so the padding of the source does not fit; "
                "give its hourglass a decoder."
            )
        started = handed_over(self.encoder, self.decoder)
        finals = check_lanes({"encoder": self.encoder}) & {FINAL}
        check_lanes({"decoder": self.decoder}, {"memory", *finals})
        check_uses((*self.encoder, *self.decoder))
        if any(_reads_memory(block) for block in configured_below(self.decoder)):
            return
        if not started:
            raise ValueError(
                "no block of the decoder reads the encoder's output, so the encoder would have no effect; "
                "give the decoder one that does, such as attention: {over: memory}."
            )
        check_nothing_is_lost(self.encoder, self.encoder_norm, started)


@primitive(
    "encoder_decoder",
    EncoderDecoderConfig,
    role="model",
    published=Published(code=("torch",)),
)
class EncoderDecoder(Composite, nn.Module):
    """An encoder, a decoder and their embeddings."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        how: Any = {"scale": config.scale_embedding, "start": config.embedding_start}
        self.embedding = TokenEmbedding(config.vocabulary, config.width, tied=config.tie_embeddings, **how)
        self.source = None
        if config.source_vocabulary is not None:
            self.source = TokenEmbedding(config.source_vocabulary, config.width, **how)
        self.position: Any = config.position.build()
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Stack(config.encoder)
        self.encoder_norm = config.encoder_norm.build()
        self.decoder = Stack(config.decoder)
        self.final_norm = config.final_norm.build()
        self.cannot_stream = cannot_stream(config.decoder)
        self.started = handed_over(config.encoder, config.decoder)
        scale_residual_outputs(self.encoder)
        scale_residual_outputs(self.decoder)
        name_paths(self)

    def forward(self, source: Tensor, target: Tensor, context: Context | None = None) -> Tensor:
        """source: [B, S], target: [B, T], int64 -> logits [B, T, V].

        The lane `memory_padding` [B, S] is the padding of the source, `context.padding` [B, T] that of the target.
        """
        context = Context() if context is None else context
        inner = replace(context, lanes=dict(context.lanes))
        self.encode(source, inner)
        return self.decode(target, inner)

    def encode(self, source: Tensor, context: Context | None = None) -> Tensor:
        """source: [B, S] int64 -> the memory [B, S, C], which is also put into the context. To stream, call this once,
        then `decode` each piece.

        The last states of recurrent blocks, from which a decoder may start, are put into the context too.
        """
        outer = Context() if context is None else context
        inner = replace(outer, padding=outer.get("memory_padding"), documents=None, streams=None, lanes={})
        inner = entered(inner, source, self.position)
        x = self._embedded(source, inner, self.embedding if self.source is None else self.source)
        outer.write("memory", self.encoder_norm(self.encoder(x, inner), inner), "B S C")
        outer.lanes.update({name: lane for name, lane in inner.lanes.items() if name.startswith(f"{FINAL}.")})
        return outer.read("memory")

    def decode(self, target: Tensor, context: Context) -> Tensor:
        """target: [B, T] int64 -> logits [B, T, V], with the memory in `context`.

        Raises ValueError if the memory or the encoder's final states are missing, or a block cannot stream.
        """
        finals = {name.rpartition(".")[0] for name in context.lanes if name.startswith(f"{FINAL}.")}
        first = context.streams is None or not context.streams.length
        if context.get("memory") is None or (first and len(finals) < self.started):
            raise ValueError(
                "the decoder reads the encoder's output or final states, so encode with the same context first: "
                "model.encode(source, context)."
            )
        context = entered(context, target, self.position)
        if context.streams is not None and self.cannot_stream:
            raise ValueError(f"This model cannot read its target in pieces: {', '.join(self.cannot_stream)} cannot.")
        x = self.decoder(self._embedded(target, context, self.embedding), context)
        x = self.final_norm(x, context)
        left(context, target)
        return self.embedding.logits(x)

    def _embedded(self, tokens: Tensor, context: Context, embedding: nn.Module) -> Tensor:
        return self.dropout(self.position.embed(embedding(tokens), context.positions))

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
        """`shape.memory` source positions; if it is 0, as many as target positions."""
        target = replace(shape, memory=shape.memory or shape.length)
        source = replace(shape, length=target.memory, memory=0)

        tokens = Cost(
            activation_bytes=source.rows * (8 + (config.width if config.dropout else 0)),
            parameters=(config.source_vocabulary or 0) * config.width,
        )
        return [
            token_part(config.vocabulary, config.width, target),
            Part(name="source", shape=source, own=tokens),  # shares the target's position and often its table
            *position_parts(config.position, config.dropout, config.width, target),
            *in_order("encoder", config.encoder, source, whole=True),
            Part(name="encoder_norm", shape=source, block=config.encoder_norm),
            *in_order("decoder", config.decoder, target),
            Part(name="final_norm", shape=target, block=config.final_norm),
            logits_part(config.vocabulary, config.width, target, tied=config.tie_embeddings),
        ]


def _reads_memory(block: Configured) -> bool:
    """Whether the block attends to the memory: it is able to, and its `over` does not select the sequence itself."""
    can = block.type.role == "block" and block.type.module.capabilities.cross
    return can and getattr(block.config, "over", "memory") == "memory"
