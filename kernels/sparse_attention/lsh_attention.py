"""Attention within chunks of positions sorted by a hash, in time and memory O(T * rounds * chunk).

Kitaev, Kaiser, Levskaya 2020, "Reformer", https://arxiv.org/abs/2001.04451, section 2. In each round the positions are
sorted by (bucket, position) and cut into chunks. The chunks of all rounds form one ring. A chunk reads itself and the
previous chunk, and also the next one if it looks ahead, each once. A query reads itself only if it reads nothing else.
Rounds are mixed by their normalisers: out = sum_r softmax_r(logsumexp_j s_rij) out_r. B batch, H heads, T time, D width
of one head, R rounds, N chunks per round, K positions per chunk, M buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain

# As published: the logit of the query's own position is below all others, and that of a forbidden position below both.
ONESELF, NOTHING = -1e5, -1e9
WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Cut:
    """How a sequence is cut: `rounds` times into `chunks` of `size` positions. Each chunk reads `views` chunks."""

    rounds: int
    chunks: int
    size: int
    views: int

    @property
    def ring(self) -> int:
        """The number of chunks of all rounds."""
        return self.rounds * self.chunks


def cut(length: int, chunk: int, rounds: int, ahead: bool) -> Cut:
    """The cut of a sequence; one that is no longer than a chunk is a single chunk, read once.

    ahead: whether a chunk reads the next one.
    """
    if length <= chunk:
        return Cut(rounds=1, chunks=1, size=length, views=1)
    chunks = -(-length // chunk)
    return Cut(rounds=rounds, chunks=chunks, size=chunk, views=min(3 if ahead else 2, rounds * chunks))


def gaussians(rows: Tensor, columns: int, seed: int) -> Tensor:
    """rows: [..] int64 -> [.., columns], N(0, 1) in float32, each a function of its row, its column and the seed."""
    column = torch.arange(columns, device=rows.device)
    key = _mixed(rows + _mixed(torch.full_like(rows, seed)))[..., None] + column * 0x9E3779B9
    first, second = _mixed(key), _mixed(_mixed(key) + 0x5BD1E995)
    radius = (-2 * ((first.double() + 1) / (WORD + 2)).log()).sqrt()
    return (radius * (second.double() * (2 * torch.pi / (WORD + 1))).cos()).float()


def _mixed(x: Tensor) -> Tensor:
    """A bijection of the numbers below 2^32 in which one changed bit changes half of the bits."""
    x = x & WORD
    for _ in range(2):
        x = ((x >> 16 ^ x) * 0x45D9F3B) & WORD
    return x >> 16 ^ x


def buckets_of(x: Tensor, rotations: Tensor, columns: Tensor | None = None) -> Tensor:
    """argmax [x R, -x R] of x: [B, H, T, D], rotations: [D, R, M / 2] -> [B, H, R, T] int64.

    rotations may also be [H, D, R, M / 2], one matrix for each head.
    columns: [B], how many columns of M / 2 count for each sequence; the number of buckets is then twice as many.
    """
    R, M = rotations.shape[-2:]
    if rotations.dim() == 3:
        scores = (x.flatten(0, 2) @ rotations.flatten(1)).view(*x.shape[:3], R, M)
    else:
        scores = (x @ rotations.flatten(2)).unflatten(3, (R, M))
    half: Tensor | int = M
    if columns is not None:
        half = columns[:, None, None, None]
        beyond = torch.arange(M, device=x.device) >= half[..., None]
        scores = scores.masked_fill(beyond, 0)
    best = scores.abs().argmax(4)
    negative = scores.gather(4, best[..., None])[..., 0] < 0
    return (best + negative * half).transpose(2, 3).contiguous()


def lsh_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    buckets: Tensor | None,
    *,
    chunk: int,
    causal: bool,
    ahead: bool | None = None,
    padding: Tensor | None = None,
    fills: bool = False,
    bias: Tensor | None = None,
    same_bucket: bool = False,
    exact_counts: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """q, k and v: [B, H, T, D], buckets: [B, H, R, T], None if T is no longer than a chunk -> [B, H, T, D].

    chunk: positions of a chunk. ahead: whether a chunk reads the next one; by default if not causal. padding: [B, T],
    True at real positions; the others are sorted after them and give zeros. fills: whether chunks of padding alone are
    in the ring, so that the first chunk of a round may read nothing of the previous round. bias: [H, 2 T - 1], added to
    the scores by the distance j - i, from 1 - T. same_bucket: a query reads only keys of its bucket. exact_counts: a
    key that a query reads several times counts once. dropout: the share of weights set to zero.
    """
    B, H, _, D = q.shape
    ahead = not causal if ahead is None else ahead
    layout = _Layout(buckets, padding, q, chunk=chunk, causal=causal, ahead=ahead, fills=fills, same_bucket=same_bucket)
    penalty = layout.penalty(q.dtype, exact_counts)
    if bias is not None:
        penalty = penalty + layout.distances(bias.to(q.dtype))
    chunks = (B * H * layout.cut.ring, -1)
    seen = layout.rows(layout.seen)
    Q = F.embedding(layout.rows(layout.slots), q.flatten(0, 2)).view(*chunks, D)
    K = F.embedding(seen, k.flatten(0, 2)).view(*chunks, D)
    # In place as far as autograd allows: penalties, scores and weights are the largest tensors.
    scores = penalty.flatten(0, 2)
    turned = K.transpose(1, 2)
    # `out=` instead of `baddbmm_`, which torch's FLOP counter does not know.
    scores = torch.baddbmm(scores, Q, turned, out=None if torch.is_grad_enabled() or is_plain() else scores)
    del Q, K, turned, penalty
    largest = scores.detach().amax(2, keepdim=True)
    weights = scores.sub_(largest).exp_()
    mixed = _gathered(F.dropout(weights, dropout), v.flatten(0, 2), seen.view(chunks))
    sums = torch.cat([mixed, weights.sum(2, keepdim=True)], dim=2)  # [.., K, D + 1]
    out = layout.mixed(sums, largest)
    out = out[..., :D] / out[..., D:]
    return out if padding is None else out.masked_fill(~padding[:, None, :, None], 0)


def _gathered(weights: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """weights: [G, K, J] times the rows [G, J] of table: [R, D] -> [G, K, D]."""
    if is_plain() or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return weights @ F.embedding(rows, table)
    return _Gathered.apply(weights, table, rows)


class _Gathered(torch.autograd.Function):
    """The backward pass gathers the rows again: kept, they would be as large as the weights."""

    @staticmethod
    def forward(weights: Tensor, table: Tensor, rows: Tensor) -> Tensor:
        return weights @ F.embedding(rows, table)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, table, rows = ctx.saved_tensors
        into = torch.ops.aten.embedding_dense_backward(weights.transpose(1, 2) @ grad, rows, len(table), -1, False)
        return grad @ F.embedding(rows, table).transpose(1, 2), into, None


class _Layout:
    """The place of each position in the ring, and what it may read there.

    slots: [B, H, R * N, K], the positions in their order; seen: [B, H, R * N, views * K], the positions that a chunk
    reads.
    """

    def __init__(
        self,
        buckets: Tensor | None,
        padding: Tensor | None,
        q: Tensor,
        *,
        chunk: int,
        causal: bool,
        ahead: bool,
        fills: bool,
        same_bucket: bool,
    ) -> None:
        B, H, T, _ = q.shape
        self.cut = cut(T, chunk, 1 if buckets is None else buckets.shape[2], ahead)
        self.causal, self.length = causal, T
        self.order = _order(buckets, padding, (B, H, T), q.device)
        counts = torch.full((1,), T, device=q.device) if padding is None else padding.sum(1)
        self.chunks = (-(-counts // self.cut.size)).clamp(min=1)  # chunks that hold a real position, [B or 1]
        if fills:
            self.chunks = torch.full_like(self.chunks, self.cut.chunks)
        self.neighbours = self._ring()
        self.slots = self._slots(self.order)
        self.seen = self._around(self.slots)
        places = torch.arange(self.cut.chunks * self.cut.size, device=q.device)
        real = (places < counts[:, None]).view(-1, 1, 1, self.cut.chunks, self.cut.size)
        self.real = self._around(real.expand(-1, -1, self.cut.rounds, -1, -1).flatten(2, 3))
        self.buckets = None
        if same_bucket and buckets is not None:
            # If everything fits into one chunk, nothing is sorted and everything may be read.
            self.buckets = buckets.masked_fill((self.chunks == 1)[:, None, None, None], 0)

    def _ring(self) -> Tensor:
        """The chunks that a chunk reads, itself first, [B or 1, R * N, views]; -1 for a repeated one."""
        R, N = self.cut.rounds, self.cut.chunks
        own = torch.arange(R * N, device=self.chunks.device)
        turn, place = own // N, own % N
        last = (self.chunks - 1)[:, None]
        before = torch.where(place > 0, own - 1, (turn - 1) % R * N + last)
        after = torch.where(place < last, own + 1, (turn + 1) % R * N)
        before, after = before.masked_fill(before == own, -1), after.masked_fill((after == own) | (after == before), -1)
        return torch.stack([own.expand_as(before), before, after], dim=2)[:, :, : self.cut.views]

    def _slots(self, x: Tensor) -> Tensor:
        """[B, H, R, T] -> [B, H, R * N, K]; the padding of the last chunk is never read."""
        x = F.pad(x, (0, self.cut.chunks * self.cut.size - self.length))
        return x.view(*x.shape[:2], self.cut.ring, self.cut.size)

    def _around(self, slots: Tensor) -> Tensor:
        """[B or 1, H or 1, R * N, K] -> [.., R * N, views * K], what a chunk reads; for bools False if there is
        nothing.
        """
        B = max(len(slots), len(self.neighbours))
        chosen = self.neighbours[:, None, :, :, None].clamp(min=0)
        around = torch.take_along_dim(slots.expand(B, -1, -1, -1)[:, :, :, None], chosen, dim=2)
        if slots.dtype == torch.bool:
            around = around & (self.neighbours >= 0)[:, None, :, :, None]
        return around.flatten(3)

    def rows(self, positions: Tensor) -> Tensor:
        """Positions [B, H, ..] -> their rows in a table of all sequences and heads."""
        B, H = positions.shape[:2]
        return positions + (torch.arange(B * H, device=positions.device) * self.length).view(B, H, 1, 1)

    def penalty(self, dtype: torch.dtype, exact_counts: bool) -> Tensor:
        """[B, H, R * N, K, views * K], to add to the scores."""
        i, j = self.slots[..., :, None], self.seen[..., None, :]
        forbidden = ~self.real[..., None, :]
        if self.causal:
            forbidden = forbidden | (j > i)
        if self.buckets is not None:
            rounds = torch.arange(self.cut.rounds, device=i.device)[:, None] * 2**32
            here = self._slots((self.buckets + rounds).gather(3, self.order))
            forbidden = forbidden | (here[..., :, None] != self._around(here)[..., None, :])
        penalty = torch.zeros((), dtype=dtype, device=i.device)
        if exact_counts:
            penalty = penalty - self._counts().clamp(min=1).to(dtype).log()
        return penalty.masked_fill(i == j, ONESELF).masked_fill_(forbidden, NOTHING)

    def distances(self, bias: Tensor) -> Tensor:
        """bias: [H, 2 T - 1] -> [B, H, R * N, K, views * K]."""
        distance = self.seen[..., None, :] - self.slots[..., :, None] + self.length - 1
        heads = torch.arange(len(bias), device=bias.device).view(-1, 1, 1, 1)
        return bias[heads, distance]

    def _places(self) -> Tensor:
        """The place of each position in its round, [B, H, R, T]."""
        numbers = torch.arange(self.length, device=self.order.device).expand_as(self.order)
        return torch.zeros_like(self.order).scatter(3, self.order, numbers)

    def _counts(self) -> Tensor:
        """How often query i reads key j in all rounds, [B, H, R * N, K, views * K]."""
        R, N = self.cut.rounds, self.cut.chunks
        starts = torch.arange(R, device=self.order.device)[:, None] * N
        chunks = self._places() // self.cut.size + starts  # the chunk of each position in each round
        shown = []  # (chunks that read a key, chunks that hold it, round), [B, H, R * N, K] and [.., views * K]
        for r in range(R):
            own = chunks[:, :, r]
            for view in range(self.cut.views):
                table = self.neighbours[:, None, :, view].expand(own.shape[0], own.shape[1], -1)
                near = self._at(table.gather(2, own), self.slots)
                across = {r} if view == 0 or self.buckets is not None else {r, (r + (1 if view == 2 else -1)) % R}
                shown += [(near, self._at(chunks[:, :, s], self.seen), r) for s in sorted(across)]
        counts = torch.zeros((), dtype=torch.int64, device=self.order.device)
        for near, stands, r in shown:
            seen = near[..., :, None] == stands[..., None, :]
            if self.buckets is not None:
                own = self.buckets[:, :, r]
                seen = seen & (self._at(own, self.slots)[..., :, None] == self._at(own, self.seen)[..., None, :])
            counts = counts + seen
        return counts

    def _at(self, values: Tensor, positions: Tensor) -> Tensor:
        """values: [B, H, T] at positions: [B, H, R * N, ..]."""
        return values.gather(2, positions.flatten(2)).view_as(positions)

    def mixed(self, sums: Tensor, largest: Tensor) -> Tensor:
        """sums: [B * H * R * N, K, D + 1], per round, relative to exp(largest) -> [B, H, T, D + 1] with one common
        factor.
        """
        B, H = self.slots.shape[:2]
        R, T, width = self.cut.rounds, self.length, sums.shape[2]
        stride = self.cut.chunks * self.cut.size
        starts = torch.arange(B * H * R, device=sums.device).view(B, H, R, 1) * stride
        rows = self._places() + starts
        back = F.embedding(rows, sums.view(-1, width))  # [B, H, R, T, D + 1]
        if R == 1:
            return back.view(B, H, T, width)
        height = largest.view(-1)[rows]
        return (back * (height - height.amax(2, keepdim=True)).exp()[..., None]).sum(2)


def _order(buckets: Tensor | None, padding: Tensor | None, shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """The positions sorted by (padded, bucket, position), [B, H, R, T]."""
    B, H, T = shape
    positions = torch.arange(T, device=device)
    keys = positions.expand(B, H, 1, T) if buckets is None else buckets * T + positions
    if padding is not None:
        # A sequence of one chunk is sorted too, so that its real positions come first.
        keys = keys.masked_fill(~padding[:, None, None, :], torch.iinfo(torch.int64).max)
        return keys.sort(dim=3, stable=True).indices
    return keys if buckets is None else keys.argsort(dim=3)
