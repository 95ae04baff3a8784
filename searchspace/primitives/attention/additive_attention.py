"""Additive attention: a small network, not a dot product, scores how well a key fits a query.

Formula: e_ij = v . tanh(W s_i + U h_j), then sum_j softmax_j(e_ij) h_j

Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
https://arxiv.org/abs/1409.0473, section 3.1. In the paper, s is the state of the decoder and h the state of the
encoder. Here s is the input, and h is the input or the memory. With `values: states`, the values are the h_j
themselves, each head takes a slice of them, and no output map follows, as in the paper. With `values: projected`,
values and output are linear maps, as in multi-head attention. Scores are not dot products, so rotary positions and
ALiBi have no effect. B batch, T time, S positions of the memory, H heads, A width of the network of one head, C model
width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.attention.additive_attention import additive_attention
from kernels.dispatch.precision import without_autocast
from searchspace.checks import at_least
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, linear, matmul, state
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.over_memory import Over, check_over, memory_of
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AdditiveAttentionConfig:
    """`alignment`: A, the width of the scoring network; null takes the width of a head.
    `over`: "self" reads the sequence itself, "memory" the encoder's output.
    `values`: whether the values are the states themselves, as in the paper (states), or linear maps of them
    (projected).

    Raises ValueError if heads does not divide dim, the alignment is below 1, or the block reads a memory in a model
    without an encoder.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    heads: int = 1
    alignment: int | None = None
    over: Over = "self"
    values: Literal["states", "projected"] = "states"
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(1, alignment=self.alignment)
        check_over(self.over, self.memory)

    @property
    def scored(self) -> int:
        """H * A, the width of a query and of a key."""
        return self.heads * (self.alignment or self.dim // self.heads)


@primitive(
    "additive_attention",
    AdditiveAttentionConfig,
    published=Published(),
)
class AdditiveAttention(Primitive):
    """Additive attention over the sequence or the memory. Streaming keeps U h and the values of all
    positions so far.
    """

    capabilities = Capabilities(cross=True)

    def __init__(self, config: AdditiveAttentionConfig) -> None:
        super().__init__()
        self.config = config
        width = config.scored // config.heads
        self.query = nn.Linear(config.dim, config.scored, bias=config.bias)  # W
        self.key = nn.Linear(config.dim, config.scored, bias=False)  # U; one bias inside tanh is enough
        self.score = nn.Parameter(torch.empty(config.heads, width))  # v
        nn.init.uniform_(self.score, -(width**-0.5), width**-0.5)
        projected = config.values == "projected"
        self.value = nn.Linear(config.dim, config.dim, bias=config.bias) if projected else None
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias) if projected else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it reads the memory and the context has none."""
        over_self = self.config.over == "self"
        slot = context.slot(self, causal=self.config.causal or not over_self)
        k, v, keys = self._self(x, context, slot) if over_self else self._memory(context, slot)
        q = self.query(x)
        wide = torch.promote_types(q.dtype, torch.float32)
        with without_autocast(x.device.type):
            q, k, v = (split(part.to(wide), self.config.heads) for part in (q, k, v))
            out = additive_attention(q, k, v, self.score.to(wide), keys, causal=over_self and self.config.causal)
        read = merge(out).to(x.dtype)
        return read if self.output is None else self.output(read)

    def _self(
        self, x: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        k, v = self.key(x), self._values(x)
        if slot is not None:
            k, v = (torch.cat([slot[name], new], dim=1) if slot else new.clone() for name, new in (("k", k), ("v", v)))
            slot["k"], slot["v"] = k, v
        return k, v, context.padding

    def _memory(self, context: Context, slot: dict[str, Tensor] | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """U h and the values of the memory. In streaming they are computed once and kept, with the padding of the
        memory.
        """
        if slot:
            return slot["k"], slot["v"], slot.get("padding")
        memory = memory_of(context)
        k, v = self.key(memory), self._values(memory)
        if slot is not None:
            slot["k"], slot["v"] = k, v
            if (padding := context.get("memory_padding")) is not None:
                slot["padding"] = padding
        return k, v, context.get("memory_padding")

    def _values(self, states: Tensor) -> Tensor:
        return states if self.value is None else self.value(states)

    @classmethod
    def reads(cls, config: AdditiveAttentionConfig) -> tuple[str, ...]:
        return ("memory",) if config.over == "memory" else ()

    @classmethod
    def states(cls, config: AdditiveAttentionConfig) -> Mapping[str, str]:
        axes = "B S C" if config.over == "memory" else "B T C"
        return {"k": axes, "v": axes, "padding": "B S"}

    @classmethod
    def cost(cls, config: AdditiveAttentionConfig, shape: Shape) -> Cost:
        """Scores are counted for every pair, including masked ones. The tanh of a pair is not a product and is not
        counted.
        """
        C, W, H = config.dim, config.scored, config.heads
        over_self, projected = config.over == "self", config.values == "projected"
        keys = shape.length if over_self else shape.memory
        rows = shape.batch * keys
        wide = max(4, shape.element_bytes)
        products = linear(shape, C, W, bias=config.bias) + matmul(rows, C, W) + Cost(parameters=C * W + W)
        products += matmul(shape.length, W + C, keys, count=shape.batch)
        held = shape.rows * (W + C + H) + rows * (W + (C if projected else 0))  # q, the result, normalisers; k; values
        if projected:
            products += matmul(rows, C, C) + linear(shape, C, C, bias=config.bias, rows=0) + matmul(shape.rows, C, C)
            products += Cost(parameters=C * C + (C if config.bias else 0))
            held += shape.rows * C if H > 1 else 0  # with one head the output map reads the result itself
        if not over_self:
            held += rows * C  # the memory
        streamed = keys * (W + C) if config.causal or not over_self else 0
        grown = streamed if over_self else 0
        return products + Cost(activation_bytes=held * wide) + state(shape, streamed - grown, growing=grown)
