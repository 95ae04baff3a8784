"""Multi-head attention: each position reads others, weighted by how well its query fits their keys.

Formula: softmax(Q K^T / sqrt(D)) V per head, Q = x Wq, K = y Wk, V = y Wv, then Wo on the concatenated heads

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2. Groups of queries share
a key and value head: Ainslie et al. 2023, "GQA", https://arxiv.org/abs/2305.13245, section 2.2. B batch, T time, S
positions of the memory, H heads, G key and value heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from kernels.attention.attention import attention
from searchspace.checks import probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul, state
from searchspace.primitives.attention.heads import Source, check_heads, merge, places, split, take_source
from searchspace.primitives.attention.kept_keys import KEPT, attend_to_kept, bias_of_kept, remember
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Positioned):
    """`key_value_heads`: number of key and value heads; null takes as many as heads.
    `over`: "self" reads the sequence itself, "memory" the encoder's output.

    Raises ValueError if the numbers of heads do not divide the width, the dropout is not a probability, or the block
    reads a memory in a model without an encoder.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    over: Over = "self"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads, self.key_value_heads)
        probability(dropout=self.dropout)
        check_over(self.over, self.memory)

    @property
    def groups(self) -> int:
        """The number of key and value heads."""
        return self.key_value_heads or self.heads

    @property
    def key_value_width(self) -> int:
        """The width of the keys of all heads at one position; the values have the same width."""
        return self.groups * (self.dim // self.heads)


@primitive(
    "attention",
    AttentionConfig,
    published=Published(
        code=("torch", "transformers"),
        released={"torch, BERT and GPT-2 have biases": "bias: true"},
    ),
)
class Attention(Primitive):
    """Attention over the sequence or the memory. Streaming keeps the keys and values of everything read so far."""

    capabilities = Capabilities(cross=True, source=True, turned=True)

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.key_value = nn.Linear(config.dim, 2 * config.key_value_width, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it reads the memory and the context has none."""
        if self.config.over == "memory":
            return self.output(merge(self._memory(x, context)))
        source = take_source(context)
        return self.output(merge(self._self(x, context) if source is None else self._source(x, source, context)))

    def _self(self, x: Tensor, context: Context) -> Tensor:
        slot = context.slot(self, causal=self.config.causal)
        q, (k, v) = split(self.query(x), self.config.heads), self._keys_values(x)
        queries = places(x, context)
        if context.position is not None:
            q, k = context.position.rotate(q, queries), context.position.rotate(k, queries)
        if slot is not None:
            parts = remember(slot, k, v)
            bias = bias_of_kept(context, self.config.heads, queries, parts)
            return attend_to_kept(q, parts, bias=bias, dropout=self._dropout)
        bias = None if context.position is None else context.position.bias(self.config.heads, queries, queries)
        return attention(q, k, v, causal=self.config.causal, keys=context.padding, bias=bias, dropout=self._dropout)

    def _source(self, x: Tensor, source: Source, context: Context) -> Tensor:
        """Queries of the pooled x; keys and values of the sequence before pooling."""
        context.slot(self, causal=False)
        q, (k, v) = split(self.query(x), self.config.heads), self._keys_values(source.x)
        bias = None
        if (position := context.position) is not None:
            queries, keys = places(x, context), source.positions
            q, k = position.rotate(q, queries), position.rotate(k, keys)
            bias = position.bias(self.config.heads, queries, keys)
        return attention(q, k, v, keys=source.padding, bias=bias, dropout=self._dropout)

    def _memory(self, x: Tensor, context: Context) -> Tensor:
        """Attention over the memory. In streaming, its keys and values are computed once and kept, together with its
        padding.
        """
        slot = context.slot(self)
        q = split(self.query(x), self.config.heads)
        if slot:
            return attention(q, slot["k"], slot["v"], keys=slot.get("padding"), dropout=self._dropout)
        memory = memory_of(context)
        k, v = self._keys_values(memory)
        if slot is not None:
            slot["k"], slot["v"] = k.clone(), v.clone()  # copies: both are views of one tensor
            if (padding := context.get("memory_padding")) is not None:
                slot["padding"] = padding
        return attention(q, k, v, keys=context.get("memory_padding"), dropout=self._dropout)

    def _keys_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self.key_value(y).chunk(2, dim=2)
        return split(k, self.config.groups), split(v, self.config.groups)  # each [B, G, T or S, D]

    @property
    def _dropout(self) -> float:
        return self.config.dropout if self.training else 0.0

    @classmethod
    def reads(cls, config: AttentionConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: AttentionConfig) -> Mapping[str, str]:
        if config.over == "memory":
            return {"k": "B G S D", "v": "B G S D", "padding": "B S"}
        return KEPT

    @classmethod
    def cost(cls, config: AttentionConfig, shape: Shape) -> Cost:
        """Scores are counted for every pair, including masked ones. Activations are those that a fused kernel keeps."""
        C, W = config.dim, config.key_value_width
        over_self = config.over == "self"
        keys = (shape.source or shape.length) if over_self else shape.memory
        streamed = 2 * keys * W if config.causal or not over_self else 0
        return (
            _projections(config, shape)
            + matmul(shape.length, C // config.heads, 2 * keys, count=shape.batch * config.heads)
            + kept(shape, shape.rows * (C + config.heads) + 2 * shape.batch * keys * W)  # queries, normalisers; k, v
            + linear(shape, C, C, bias=config.bias)
            + state(shape, 0 if over_self else streamed, growing=streamed if over_self else 0)
        )


def _projections(config: AttentionConfig, shape: Shape) -> Cost:
    C, W = config.dim, config.key_value_width
    if config.over == "self" and not shape.source:  # both read x, which is kept once
        return linear(shape, C, C + 2 * W, bias=config.bias)
    read = shape.batch * (shape.source if config.over == "self" else shape.memory)
    return linear(shape, C, C, bias=config.bias) + linear(shape, C, 2 * W, bias=config.bias, rows=read)
