"""BigBird attention: each block reads its neighbours, the first and last block and some random blocks; the cost grows
as T.

Formula: softmax(Q K^T / sqrt(D)) V, block i reads the blocks {0, i - 1, i, i + 1, last} and r random ones

Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", https://arxiv.org/abs/2007.14062, section 2 and
appendix D, the internal construction (ITC). The first and the last block read everything. The random blocks of a block
i between them are drawn per head and row from the remaining blocks. One softmax runs over the union, with each key
once. A sequence of at most (5 + 2 r) b positions is too short for the pattern, so all positions read all positions.

The last block is that of the last real position, and the draws depend only on the number of real blocks. So padding
does not change what a sequence reads. Draws come from a hash of the seed, the layer, the head and the row. They are the
same in training and evaluation, in every call and on every device. Queries at padding give zeros. The released code
(google-research/bigbird, transformers) has one pattern for a batch: the last block is that of the padded length, and
padding decides whether a sequence is short. So a sequence in a padded batch reads other positions than it does alone:
`end: padded`. B batch, T time, H heads, D width of one head, C = H * D model width, b positions of a block, N blocks, n
of them read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from kernels.sparse_attention.block_sparse_attention import block_sparse_attention, by_distance, distances
from kernels.sparse_attention.gathered import biased_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.sparse_attention.bigbird_pattern import Pattern, pattern
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned
from searchspace.sharing import numbered


@dataclass(frozen=True, kw_only=True)
class BigbirdAttentionConfig(Positioned):
    """`block`: b, number of positions in a block.
    `random_blocks`: r, number of random blocks that each block reads.
    `end`: which block is the last one of a sequence: that of its last real position (real), or that of the padded
    length (padded).
    `seed`: seed of the random blocks; each layer of a model draws its own from it.

    Raises ValueError if heads does not divide dim, the block is empty, a number is negative, or the dropout is not a
    probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    block: int = 8
    random_blocks: int = 3
    end: Literal["real", "padded"] = "real"
    seed: int = 0
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, block=self.block)
        at_least(0, random_blocks=self.random_blocks, seed=self.seed)

    @property
    def hides_padding(self) -> bool:
        """Whether padding after the end leaves the results of real positions unchanged."""
        return self.end == "real"

    @property
    def short(self) -> int:
        """The length of the longest sequence in which all positions read all positions."""
        return (5 + 2 * self.random_blocks) * self.block


@primitive(
    "bigbird_attention",
    BigbirdAttentionConfig,
    published=Published(
        paper={"random blocks come from a hash of the seed, the layer, the head and the row": ""},
        code=("google-research/bigbird", "transformers"),
        released={
            "the last block is that of the padded length": "end: padded",
            "transformers: random blocks are drawn in training only; in evaluation the first block is read again": "",
        },
    ),
)
class BigbirdAttention(Primitive):
    """Attention over near, random and global blocks. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False, turned=True)

    def __init__(self, config: BigbirdAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.layer = numbered("bigbird_attention")
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context is streaming."""
        context.slot(self, causal=False)
        q, k, v = (split(part, self.config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        if context.position is not None:
            positions = places(x, context)
            q, k = context.position.rotate(q, positions), context.position.rotate(k, positions)
        out = merge((self._full if x.shape[1] <= self.config.short else self._sparse)(q, k, v, context))
        if context.padding is not None:
            out = out.masked_fill(~context.padding[:, :, None], 0)
        return self.output(out)

    def _full(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        bias = None
        if context.position is not None:
            steps = torch.arange(q.shape[2], device=q.device)
            bias = context.position.bias(self.config.heads, steps, steps)
        return attention(q, k, v, keys=context.padding, bias=bias, dropout=self._dropout)

    def _sparse(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        (B, H, T, D), b = q.shape, self.config.block
        bias = self._bias(T, context, q.device)
        pattern = self._pattern(T, context.padding, q.device)
        near = None
        if bias is not None:
            near = by_distance(bias, distances(pattern.blocks, rows=b, columns=b) + T - 1)
        out = block_sparse_attention(
            q, k, v, pattern.blocks, rows=b, columns=b, allowed=pattern.allowed, keys=context.padding, bias=near,
            dropout=self._dropout,
        )  # fmt: skip
        ends = pattern.ends[:, None, :, None, None].expand(B, H, 2, b, D)
        blocks = nn.functional.pad(q, (0, 0, 0, -T % b)).unflatten(2, (-1, b))
        everything = self._global(blocks.gather(2, ends).flatten(2, 3), k, v, pattern.ends, bias, context.padding)
        out = nn.functional.pad(out, (0, 0, 0, -T % b)).unflatten(2, (-1, b))
        return out.scatter(2, ends, everything.unflatten(2, (2, b)).to(out.dtype)).flatten(2, 3)[:, :, :T]

    def _global(
        self, q: Tensor, k: Tensor, v: Tensor, ends: Tensor, bias: Tensor | None, padding: Tensor | None
    ) -> Tensor:
        """q: [B, H, 2 b, D], the queries of the first and the last block, which read everything -> the same shape."""
        if bias is None:
            return attention(q, k, v, keys=padding, dropout=self._dropout)
        T, b = k.shape[2], self.config.block
        i = (ends[:, :, None] * b + torch.arange(b, device=q.device)).flatten(1)  # [1 or B, 2 b]
        near = by_distance(bias, (torch.arange(T, device=q.device) - i[:, :, None])[:, None] + T - 1)
        return biased_attention(q, k, v, None if padding is None else padding[:, None, None], near, self._dropout)

    def _bias(self, length: int, context: Context, device: torch.device) -> Tensor | None:
        """The bias by distance, from 1 - T to T - 1: [H, 2 T - 1]."""
        if context.position is None:
            return None
        steps = torch.arange(2 * length - 1, device=device)
        bias = context.position.bias(self.config.heads, steps[length - 1 : length], steps)
        return None if bias is None else bias[:, 0]

    def _pattern(self, length: int, padding: Tensor | None, device: torch.device) -> Pattern:
        """One pattern for all sequences; with padding, one for each sequence, up to its last real position if the
        configuration says so.
        """
        config = self.config
        own = padding is not None and config.end == "real"
        lengths = torch.full((1,), length, device=device)
        if padding is not None and own:
            lengths = (padding * torch.arange(1, length + 1, device=device)).amax(1)
        return pattern(
            lengths,
            -(-length // config.block),
            heads=config.heads,
            block=config.block,
            drawn=config.random_blocks,
            seed=(config.seed, self.layer),
            some_short=own,
        )

    @property
    def _dropout(self) -> float:
        return self.config.dropout if self.training else 0.0

    @classmethod
    def cost(cls, config: BigbirdAttentionConfig, shape: Shape) -> Cost:
        """Scores are counted block by block, including masked ones. Activations are those that a fused kernel keeps."""
        C = config.dim
        work = _full_cost if shape.length <= config.short else _sparse_cost
        return linear(shape, C, 3 * C, bias=config.bias) + work(config, shape) + linear(shape, C, C, bias=config.bias)


def _full_cost(config: BigbirdAttentionConfig, shape: Shape) -> Cost:
    scores = matmul(shape.length, config.dim // config.heads, 2 * shape.length, count=shape.batch * config.heads)
    return scores + kept(shape, shape.rows * (3 * config.dim + config.heads))  # queries, keys, values; normalisers


def _sparse_cost(config: BigbirdAttentionConfig, shape: Shape) -> Cost:
    C, D, b = config.dim, config.dim // config.heads, config.block
    blocks = shape.batch * -(-shape.length // b)
    listed = (5 + config.random_blocks) * b
    ends = 2 * b * shape.batch
    return (
        matmul(b, D, 2 * listed, count=blocks * config.heads)
        + matmul(ends, D, 2 * shape.length, count=config.heads)
        + kept(shape, blocks * b * (2 * C + config.heads))  # queries, results and normalisers of the blocks
        + kept(shape, blocks * 2 * listed * C)  # their keys and values
        + kept(shape, 3 * shape.rows * C + ends * (2 * C + config.heads))  # read by the end blocks; their own
    )
