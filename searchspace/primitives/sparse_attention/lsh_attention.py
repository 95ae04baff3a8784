"""LSH attention (Reformer): each position reads only positions with the same hash; the cost grows as T.

Formula: softmax(Q K^T / sqrt(D)) V within a bucket, k = q / |q|, bucket = argmax [q R, -q R]

Kitaev, Kaiser, Levskaya 2020, "Reformer", https://arxiv.org/abs/2001.04451, section 2. Queries are their own keys: k =
q / |q|, where |q| is at least 1e-3, because the gradient of a row of zeros would be infinite. Scores are q k / sqrt(D).
The released code does not divide (`scale: false`), and its |q| is sqrt(D (mean(q^2) + key_eps)) with `key_eps` 1e-6. R
is a fixed Gaussian matrix, drawn from `seed` for each round and layer. `kernels.sparse_attention.lsh_attention`
documents how positions are sorted and read.

Public code differs in what chunks read and in the hashes. The authors' code (google/trax) and
lucidrains/reformer-pytorch let chunks look back only, even in a block that is not causal: `look: back`. The authors'
code and transformers draw a matrix R for each head: `head_rotations: true`. transformers fills a batch up to whole
chunks and hashes padding into a last bucket, so the first chunk of a round looks back at padding instead of real
positions: `padding: fills`.

The content selects positions. Where a chunk starts and ends depends on how many positions have smaller hashes,
future positions included. The masks are causal, and no value or gradient of the future reaches the past. But which part
of its past a position reads depends on the whole sequence. The paper trains language models in this way. It also means
that a sequence cannot be read in pieces. Padding gets hashes behind those of all real positions, and only real
positions count for the chunks, so padding changes nothing (`padding: apart`). `buckets: null` takes two buckets for
every chunk of the sequence. B batch, T time, H heads, D width of one head, R rounds, C = H * D model width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.dispatch.precision import without_autocast
from kernels.sparse_attention.lsh_attention import buckets_of, cut, gaussians, lsh_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned
from searchspace.sharing import numbered

SHORTEST = 1e-3  # the length by which a shorter query is divided


@dataclass(frozen=True, kw_only=True)
class LshAttentionConfig(Positioned):
    """`chunk`: number of positions in a chunk.
    `rounds`: R, number of hash rounds.
    `buckets`: number of buckets; null takes two per chunk.
    `factorised`: whether two small hashes replace one large one.
    `scale`: whether scores are divided by sqrt(D); the released code does not.
    `key_eps`: number added to the mean square of a key before it is normalised.
    `look`: which chunks a chunk reads besides itself: the previous one and, if not causal, the next one (around), or
    only the previous one (back).
    `head_rotations`: whether each head has its own R.
    `padding`: whether chunks hold only real positions (apart), or padding fills chunks at the end (fills).
    `same_bucket`: whether a query reads only keys of its own bucket.
    `exact_counts`: whether a key found in several rounds counts once.
    `seed`: seed of the hashes.

    Raises ValueError if heads does not divide dim, the number of buckets is odd or cannot be factorised, another number
    is too small, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    chunk: int = 32
    rounds: int = 2
    buckets: int | None = 8
    factorised: bool = False
    scale: bool = True
    key_eps: float = 0.0
    look: Literal["around", "back"] = "around"
    head_rotations: bool = False
    padding: Literal["apart", "fills"] = "apart"
    same_bucket: bool = False
    exact_counts: bool = False
    seed: int = 0
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, chunk=self.chunk, rounds=self.rounds)
        at_least(0, seed=self.seed)
        if self.key_eps < 0:
            raise ValueError(f"key_eps must be at least 0, but got key_eps={self.key_eps}.")
        if self.buckets is not None and (self.buckets < 2 or self.buckets % 2):
            raise ValueError(f"buckets must be even and at least 2, or null for two a chunk, but got {self.buckets}.")
        if self.factorised and self.buckets is not None and self.buckets % 4:
            raise ValueError(
                f"buckets must be a multiple of 4 to be factorised into two even numbers, but got {self.buckets}."
            )

    @property
    def ahead(self) -> bool:
        """Whether a chunk reads the next one."""
        return not self.causal and self.look == "around"

    @property
    def hides_padding(self) -> bool:
        """Whether padding after the end leaves the results of real positions unchanged."""
        return self.padding == "apart"

    def columns(self, chunks: int) -> tuple[int, ...]:
        """The number of columns of R of each hash, half of its buckets, for a sequence of `chunks` chunks."""
        half = chunks if self.buckets is None else self.buckets // 2
        if not self.factorised:
            return (half,)
        # The factors of b / 4 = first * second that are closest to each other. If the number of buckets follows the
        # length, their product may be larger than b / 4.
        quarter = half // 2 if self.buckets is not None else -(-half // 2)
        first = max(n for n in range(1, math.isqrt(quarter) + 1) if self.buckets is None or quarter % n == 0)
        return (first, -(-quarter // first))


@primitive(
    "lsh_attention",
    LshAttentionConfig,
    published=Published(
        paper={"lengths of keys are bounded away from zero by 1e-3": ""},
        code=("google/trax", "transformers", "lucidrains/reformer-pytorch"),
        released={
            "scores are not divided by sqrt(D); reformer-pytorch divides": "scale: false",
            "1e-6 is added to the mean square of a key": "key_eps: 1.0e-6",
            "chunks look back only, even in a block that is not causal": "look: back",
            "each head has its own rotations, optional in reformer-pytorch": "head_rotations: true",
            "transformers: padding fills chunks, and the first chunk of a round looks back at it": "padding: fills",
            "reformer-pytorch: without duplicates, weights of pairs seen only across two rounds are wrong by 1e9": "",
            "rotations are drawn again at every call": "",
        },
    ),
)
class LshAttention(Primitive):
    """Attention among positions with equal hashes. It cannot read a sequence in pieces."""

    capabilities = Capabilities(streaming=False, turned=True, selects=True)

    def __init__(self, config: LshAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.number = numbered("lsh_attention")
        self.query_value = nn.Linear(config.dim, 2 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if the context is streaming."""
        context.slot(self, causal=False)
        q, v = (split(half, self.config.heads) for half in self.query_value(x).chunk(2, dim=2))
        wide = torch.promote_types(q.dtype, torch.float32)
        # Half precision cannot represent the logits of masked keys, and its rounding changes many hashes.
        with without_autocast(x.device.type):
            out = self._attend(q.to(wide), v.to(wide), x, context)
        return self.output(merge(out.to(v.dtype)))

    def _attend(self, q: Tensor, v: Tensor, x: Tensor, context: Context) -> Tensor:
        """q and v: [B, H, T, D] -> the same shape."""
        config = self.config
        if context.position is not None:
            q = context.position.rotate(q, places(x, context))
        k = F.normalize(q, dim=3, eps=SHORTEST) if config.key_eps == 0 else _nearly_normalised(q, config.key_eps)
        long = x.shape[1] > config.chunk
        return lsh_attention(
            q,
            k * q.shape[3] ** -0.5 if config.scale else k,
            v,
            context.choose(lambda: self._buckets(q.detach(), context.padding)) if long else None,
            chunk=config.chunk,
            causal=config.causal,
            ahead=config.ahead,
            padding=context.padding,
            fills=config.padding == "fills",
            bias=self._bias(x, context),
            same_bucket=config.same_bucket,
            exact_counts=config.exact_counts,
            dropout=config.dropout if self.training else 0.0,
        )

    def _bias(self, x: Tensor, context: Context) -> Tensor | None:
        """[H, 2 T - 1], the bias by distance."""
        if context.position is None:
            return None
        T = x.shape[1]
        keys = torch.arange(2 * T - 1, device=x.device)
        bias = context.position.bias(self.config.heads, keys[T - 1 : T], keys)
        return None if bias is None else bias[:, 0]

    @torch.no_grad()
    def _buckets(self, q: Tensor, padding: Tensor | None) -> Tensor:
        """The bucket of each position and round: [B, H, R, T]. The number of chunks of each sequence sets the number of
        buckets if the configuration does not.
        """
        config = self.config
        N = -(-q.shape[2] // config.chunk)
        counts = None
        if padding is not None and config.buckets is None and config.padding == "apart":
            counts = -(-padding.sum(1) // config.chunk)
        buckets, before = torch.zeros((), dtype=torch.int64, device=q.device), 1
        for index in range(len(config.columns(N))):
            own, most = self._columns(index, N, counts, q.device)
            hashed = buckets_of(q, self._rotations(index, most, q), own)
            buckets = buckets + hashed * before
            before = 2 * most  # at least the number of buckets of any sequence
        return buckets

    def _columns(self, index: int, N: int, counts: Tensor | None, device: torch.device) -> tuple[Tensor | None, int]:
        """How many columns of hash `index` each sequence uses (None if all), and the maximum over the sequences."""
        config = self.config
        if counts is None:
            return None, config.columns(N)[index]
        table = [config.columns(max(1, n))[index] for n in range(N + 1)]
        return torch.tensor(table, device=device)[counts], max(table)

    def _rotations(self, index: int, columns: int, q: Tensor) -> Tensor:
        """R of hash `index`, [D, R, columns], or [H, D, R, columns] if each head has its own. A column does not depend
        on the number of columns."""
        D, R = q.shape[3], self.config.rounds
        rows = torch.arange(D, device=q.device)[:, None] * R + torch.arange(R, device=q.device) + index * D * R
        if self.config.head_rotations:  # there are at most two hashes
            rows = rows + torch.arange(q.shape[1], device=q.device)[:, None, None] * 2 * D * R
        seed = (self.config.seed * 1_000_003 + self.number) % 2**32
        return gaussians(rows, columns, seed).to(q.dtype)

    @classmethod
    def cost(cls, config: LshAttentionConfig, shape: Shape) -> Cost:
        """Scores are counted chunk by chunk, including masked ones."""
        C, D = config.dim, config.dim // config.heads
        how = cut(shape.length, config.chunk, config.rounds, config.ahead)
        heads = shape.batch * config.heads
        rows, seen = heads * how.ring * how.size, how.views * how.size
        hashed = sum(config.columns(how.chunks)) if shape.length > config.chunk else 0
        held = shape.rows * (2 * C + 2 * config.heads)
        hashing = matmul(heads * shape.length, D, config.rounds * hashed, backward=0)
        return (
            linear(shape, C, 2 * C, bias=config.bias)
            + replace(hashing, choosing_flops=hashing.flops)
            + matmul(how.size, D, 2 * seen, count=heads * how.ring)
            + kept(shape, held + rows * (D + seen) + rows * how.views * D + shape.rows * (C + config.heads))
            + Cost(activation_bytes=8 * (rows + rows * how.views + heads * how.rounds * shape.length))
            + linear(shape, C, C, bias=config.bias)
        )


def _nearly_normalised(q: Tensor, eps: float) -> Tensor:
    """q: [.., D] -> q / sqrt(D (mean(q^2) + eps)), which is shorter than one if q is short."""
    return q * (q.shape[3] * (q.square().mean(3, keepdim=True) + eps)).rsqrt()
