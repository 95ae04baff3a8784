"""Causal attention over bands of keys, with scores that depend on the distance, under one softmax over all bands.

Queries are grouped in units of `step` positions, keys in units of `slots`. A query reads the keys of its own unit and
of the units before it, `reach` units in all. A window is a band with one query and one key per unit. If each chunk of
positions leaves a few summary vectors, these form a band too: its unit is the queries of a chunk and the vectors of the
previous chunk. Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, section 3.3.

Scores: q.k + p.r_d, where p is the query for positions and r_d the key of distance d, as in Dai et al. 2019,
"Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.3. Units are cut into tiles, so time and memory are O(T *
reach * slots). B batch, H heads, Tq queries, Tk keys, D width of one head, N tiles of R queries and K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

SMALLEST_TILE = 16  # queries, as in kernels/sparse_attention/sliding_window_attention.py


@dataclass(frozen=True, kw_only=True)
class Band:
    """Which keys the queries read.

    queries: their number. units: how many units they are in. before: units of keys before the unit of the first query;
    -1 if that unit has no keys either. reach: units that a query reads. step, slots: queries and keys of a unit. past:
    positions of its unit before the first query.
    """

    queries: int
    units: int
    before: int
    reach: int
    step: int
    slots: int
    past: int

    @property
    def unit_rows(self) -> int:
        """Units in a tile: all of them if the last query reads all keys."""
        if self.reach == self.before + self.units:
            return self.units
        return min(self.units, max(self.reach, -(-SMALLEST_TILE // self.step)))

    @property
    def count(self) -> int:
        """The number of tiles."""
        return -(-self.units // self.unit_rows)

    @property
    def rows(self) -> int:
        """Queries of a tile."""
        return self.unit_rows * self.step

    @property
    def columns(self) -> int:
        """Keys of a tile; a single tile needs no other keys than those that exist."""
        units = self.before + self.units if self.count == 1 else self.unit_rows + self.reach - 1
        return units * self.slots

    @property
    def distances(self) -> int:
        """Keys that one query reads, which is the number of distances."""
        return self.reach * self.slots

    def query_tiles(self, rows: Tensor) -> Tensor:
        """[B, H, Tq, D] -> [B, H, N, R, D]."""
        after = self.count * self.rows - self.past - self.queries
        return F.pad(rows, (0, 0, self.past, after)).unflatten(2, (self.count, self.rows))

    def key_tiles(self, keys: Tensor) -> Tensor:
        """[B, H, Tk, D] -> [B, H, N, K, D], the keys of every tile."""
        if self.count == 1:
            return keys[:, :, None, : self.columns]
        return self._stretches(keys.transpose(2, 3)).permute(0, 1, 3, 4, 2)

    def real_tiles(self, real: Tensor) -> Tensor:
        """[B or 1, Tk] of bool -> [B or 1, 1, N, 1, K]."""
        tiles = real[:, None, : self.columns] if self.count == 1 else self._stretches(real)
        return tiles[:, None, :, None, :]

    def _stretches(self, keys: Tensor) -> Tensor:
        """[.., Tk] -> [.., N, K]."""
        before = (self.reach - 1 - self.before) * self.slots
        whole = (self.count * self.unit_rows + self.reach - 1) * self.slots
        # a negative number drops keys that no query reads
        padded = F.pad(keys, (before, whole - before - keys.shape[-1]))
        return padded.unfold(-1, self.columns, self.unit_rows * self.slots)

    def by_key(self, scores: Tensor) -> Tensor:
        """[B, H, N * R, distances], the farthest first -> [B, H, N, R, K], the lowest number where there is none."""
        G, S = self.unit_rows, self.slots
        units = scores.unflatten(2, (self.count, G, self.step)).transpose(3, 4)  # [B, H, N, step, G, distances]
        # Rows that are one unit too long: each begins one unit later than the previous row.
        padded = F.pad(units, (0, G * S), value=torch.finfo(scores.dtype).min).flatten(4)
        width = (self.reach + G - 1) * S
        shifted = padded[..., : G * width].unflatten(4, (G, width)).transpose(3, 4).flatten(3, 4)
        return shifted[..., width - self.columns :]

    def by_query(self, tiles: Tensor) -> Tensor:
        """[B, H, N, R, X] -> [B, H, Tq, X]."""
        return tiles.flatten(2, 3)[:, :, self.past : self.past + self.queries]


def band(
    queries: int, *, before: int, reach: int | None = None, step: int = 1, slots: int = 1, past: int = 0
) -> Band | None:
    """The band of a number of queries, no wider than the existing keys; None if they read no keys.

    reach: None means all units before. At most `reach` - 1 units are before that of the first query: the caller drops
    those out of reach.
    """
    units = -(-(past + queries) // step)
    reach = before + units if reach is None else min(reach, before + units)
    if reach < 1:
        return None
    return Band(queries=queries, units=units, before=before, reach=reach, step=step, slots=slots, past=past)


@dataclass(frozen=True)
class Reading:
    """What a band of keys is read with.

    q and p: [B, H, Tq, D], scaled, for the keys and for the distances. k and v: [B, H, Tk, D]. r: [H, distances, D],
    the farthest first. real: [B or 1, Tk], True where a key may be read.
    """

    band: Band
    q: Tensor
    p: Tensor
    k: Tensor
    v: Tensor
    r: Tensor
    real: Tensor | None = None

    def scores(self) -> Tensor:
        """[B, H, N, R, K]; the lowest number where a query may not read."""
        band = self.band
        far = band.query_tiles(self.p).flatten(2, 3) @ self.r.transpose(1, 2)
        scores = band.query_tiles(self.q) @ band.key_tiles(self.k).transpose(3, 4)
        scores = scores + band.by_key(far)
        if self.real is None and band.count == 1:
            return scores
        there = self.k.new_ones(1, self.k.shape[2], dtype=torch.bool) if self.real is None else self.real
        return scores.masked_fill(~band.real_tiles(there), torch.finfo(scores.dtype).min)


def banded_attention_reference(readings: Sequence[Reading], *, queries: Tensor | None = None) -> Tensor:
    """The definition, one query after the other; arguments and result as for `banded_attention`."""
    rows = []
    for i in range(readings[0].q.shape[2]):
        scores, values = [], []
        for read in readings:
            band, wide = read.band, torch.promote_types(read.q.dtype, torch.float32)
            # its own unit, counted from the first unit of the given keys
            unit = band.before + (band.past + i) // band.step
            last = (unit + 1) * band.slots
            first = max(0, last - band.distances)
            k, v, r = (part.to(wide) for part in (read.k[:, :, first:last], read.v[:, :, first:last], read.r))
            score = torch.einsum("bhd,bhkd->bhk", read.q[:, :, i].to(wide), k)
            score = score + torch.einsum("bhd,hkd->bhk", read.p[:, :, i].to(wide), r[:, r.shape[1] - (last - first) :])
            if read.real is not None:
                score = score.masked_fill(~read.real[:, None, first:last], torch.finfo(wide).min)
            scores.append(score)
            values.append(v)
        rows.append(torch.einsum("bhk,bhkd->bhd", torch.cat(scores, 2).softmax(2), torch.cat(values, 2)))
    out = torch.stack(rows, dim=2).to(readings[0].q.dtype)
    return out if queries is None else out.masked_fill(~queries[:, None, :, None], 0)


def banded_attention(readings: Sequence[Reading], *, queries: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """One softmax over everything that the bands read -> [B, H, Tq, D].

    queries: [B, Tq], True where a query is real (it must read something); the others give zeros. dropout: the share of
    weights set to zero.
    """
    scores = [reading.scores() for reading in readings]
    # One maximum for all bands; their scores are never in one matrix.
    tops = [read.band.by_query(score.detach().amax(4, keepdim=True)) for read, score in zip(readings, scores)]
    top = torch.stack(tops).amax(0)  # [B, H, Tq, 1]
    totals, outs = [], []
    for read, score in zip(readings, scores):
        weights = (score - read.band.query_tiles(top)).exp()
        totals.append(read.band.by_query(weights.sum(4, keepdim=True)))
        outs.append(read.band.by_query(F.dropout(weights, dropout) @ read.band.key_tiles(read.v)))
    out = sum(outs[1:], outs[0]) / sum(totals[1:], totals[0])
    return out if queries is None else out.masked_fill(~queries[:, None, :, None], 0)
