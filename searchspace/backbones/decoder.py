"""A language model: each position reads itself and earlier positions and predicts the next token.

Formula: h = final_norm(body(E x + positions)), p(x_{t+1} | x_1 .. x_t) = softmax(h_t E^T)

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", describes a Transformer of this
kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from searchspace.backbones.embedding import Start, TokenEmbedding, logits_part, token_part
from searchspace.backbones.entry import cannot_stream, entered, left, name_paths, position_parts
from searchspace.backbones.initialisation import scale_residual_outputs
from searchspace.checks import at_least, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.parts import Composite, Part, check_lanes, check_uses, configured_below, in_order
from searchspace.registry import Blocks, Configured, Norm, Position, block_type, named, primitive
from searchspace.rotation import check_position
from searchspace.tree import Block


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """A body of post-norm blocks needs `final_norm: none`, because it ends with a norm of its own. If the last block of
    the body has another output width, the final norm and the logits have that width.

    `embedding_start`: the initial standard deviation of the token embedding: 0.02 (small), or 1 / sqrt(C) (unit).
    `logits_bias`: whether each token's logit has a learned bias.

    Raises ValueError if the vocabulary is empty, a block that widens is not the last one, or the final norm, the table
    of tokens or the position encoding does not fit the width.
    """

    width: int
    vocabulary: int
    position: Position = named("sinusoidal")
    tie_embeddings: bool = True
    scale_embedding: bool = True
    embedding_start: Start = "small"
    dropout: float = 0.0
    body: Blocks
    final_norm: Norm = named("layer_norm")
    logits_bias: bool = False

    def __post_init__(self) -> None:
        at_least(1, width=self.width, vocabulary=self.vocabulary)
        probability(dropout=self.dropout)
        self._check_width()
        check_position(self.position, self.body, "body")
        check_lanes({"body": self.body})
        check_uses(self.body)

    @property
    def width_after(self) -> int:
        """The width of the body's output."""
        return self.width * math.prod(_widening(block) for block in self.body[-1:])

    def _check_width(self) -> None:
        wide = [block.type.name for block in configured_below(self.body) if _widening(block) > 1]
        if wide and (len(wide) > 1 or _widening(self.body[-1]) == 1):
            raise ValueError(
                f"{wide[0]} has a wider output than its input, so only the last block of the body may be of its "
                "kind. Let it merge to the width of its input."
            )
        if wide and self.tie_embeddings:
            raise ValueError(
                f"the table of tokens has width {self.width}, but {wide[0]} at the end of the body gives width "
                f"{self.width_after}, so the logits need a table of their own; set tie_embeddings: false."
            )
        if getattr(self.final_norm.config, "dim", self.width_after) != self.width_after:
            raise ValueError(
                f"final_norm must be as wide as the body's output, {self.width_after}, "
                f"but it is {self.final_norm.config.dim} wide."
            )


def _widening(block: Configured) -> int:
    return block.type.module.widening(vars(block.config)) if block.type.role == "block" else 1


@primitive("decoder", DecoderConfig, role="model")
class Decoder(Composite, nn.Module):
    """Token embedding, body, final norm and logits."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(
            config.vocabulary,
            config.width,
            scale=config.scale_embedding,
            start=config.embedding_start,
            tied=config.tie_embeddings,
            output_width=config.width_after,
            bias=config.logits_bias,
        )
        self.position: Any = config.position.build()
        self.dropout = nn.Dropout(config.dropout)
        self.body = Stack(config.body)
        self.final_norm = config.final_norm.build()
        self.cannot_stream = cannot_stream(config.body)
        scale_residual_outputs(self.body)
        name_paths(self)

    def forward(self, tokens: Tensor, context: Context | None = None) -> Tensor:
        """tokens: [B, T] int64 -> logits [B, T, V].

        With `context.streams` the tokens are the next piece of a sequence. Raises ValueError if a block cannot stream.
        """
        context = entered(context, tokens, self.position)
        if context.streams is not None and self.cannot_stream:
            raise ValueError(f"This model cannot read its input in pieces: {', '.join(self.cannot_stream)} cannot.")
        x = self.dropout(self.position.embed(self.embedding(tokens), context.positions))
        x = self.final_norm(self.body(x, context), context)
        left(context, tokens)
        return self.embedding.logits(x)

    @classmethod
    def given(cls, fields: Mapping[str, Any]) -> dict[str, Given]:
        width, body = fields["width"], fields.get("body")
        last = body[-1] if isinstance(body, tuple) and body else body
        if isinstance(last, Block):
            after = width * block_type(last.name, "block").module.widening(last.fields)
        elif isinstance(last, Configured):
            after = width * _widening(last)
        else:
            after = width
        within = Given(dim=width, causal=True)
        return {
            "position": within,
            "body": replace(within, widens=True),
            "final_norm": replace(within, dim=after),
        }

    @classmethod
    def parts(cls, config: DecoderConfig, shape: Shape) -> list[Part]:
        return [
            token_part(config.vocabulary, config.width, shape),
            *position_parts(config.position, config.dropout, config.width, shape),
            *in_order("body", config.body, shape),
            Part(name="final_norm", shape=shape, block=config.final_norm),
            logits_part(
                config.vocabulary,
                config.width_after,
                shape,
                tied=config.tie_embeddings,
                bias=config.logits_bias,
            ),
        ]
