"""LiteTransformerSearch (https://arxiv.org/abs/2203.02094): GPT-2 models that were trained from scratch.

Only the recorded rows have values, so the space of a table is its rows: a random point is a random row, a mutation is
one of the nearest rows. The rows are points of one YAML space. The objectives are perplexity, and non-embedding
parameters or the latency on a device, measured before training. The score is the share of the exact front that
was found.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np

from benchmarks.quality.table import Table, Values, found, share_of_front
from searchspace.space.point import Point
from searchspace.space.space import Size, Space

SPACE = """
kind: decoder
width: !int {low: 64, high: 1024, step: 64}
vocabulary: 1000
scale_embedding: !choice [true, false]
dropout: !choice [0.1, 0.2, 0.4]
body:
  - repeat:
      times: !int [1, 24]
      of:
        - residual: {of: {attention: {heads: !choice {each: true, options: [2, 4, 8]}}}}
        - residual: {of: {feed_forward: {hidden: !int {low: 32, high: 8192, log: true, each: true}}}}
"""
NEAR = 5  # rows that a mutation may lead to


class Rows:
    """The space of a table: some points of `space`, with the interface of a space."""

    def __init__(self, space: Space, points: list[Point]) -> None:
        self.space, self.points = space, points
        self._matrix = np.array([space.encode(point) for point in points])
        self._places = {point.architecture.hash: place for place, point in enumerate(points)}

    @property
    def dimensions(self) -> Any:
        return self.space.dimensions

    def encode(self, point: Point) -> np.ndarray:
        return self.space.encode(point)

    def size(self) -> Size:
        return Size(len(self.points), 0, len(self.points))

    def enumerate(self) -> Iterator[Point]:
        return iter(self.points)

    def feasible(self, point: Point) -> bool:
        return point.architecture.hash in self._places

    def sample(self, rng: random.Random, by: Literal["choices", "architectures"] = "choices") -> Point:
        return rng.choice(self.points)

    def realise(self, choose: Any) -> Point:
        return self._nearest(self.space.realise(choose), 1)[0]

    def mutate(self, point: Point, rng: random.Random) -> Point:
        return rng.choice([each for each in self._nearest(point, NEAR + 1) if each is not point][:NEAR])

    def crossover(self, a: Point, b: Point, rng: random.Random) -> Point:
        return self._nearest(self.space.crossover(a, b, rng), 1)[0]

    def neighbours(self, point: Point, rng: random.Random) -> Iterator[Point]:
        return (each for each in self._nearest(point, 4 * NEAR) if each is not point)

    def _nearest(self, point: Point, count: int) -> list[Point]:
        distances = np.abs(self._matrix - self.space.encode(point)).sum(1)
        return [self.points[place] for place in np.argsort(distances, kind="stable")[:count]]


def rows() -> list[dict[str, str]]:
    """The recorded rows with a perplexity. Raises Missing if they are not on this machine."""
    with gzip.open(found("lts-gpt2", "lts.csv.gz"), "rt") as file:
        return [row for row in csv.DictReader(file) if row["valid_ppl"]]


def tables() -> list[Table]:
    space, sets = Space.parse(SPACE), defaultdict(list)
    for row in rows():
        sets[row["set"]].append(row)
    return [_table(name, space, each) for name, each in sets.items()]


def _table(name: str, space: Space, rows: list[dict[str, str]]) -> Table:
    cost = "latency_ms" if rows[0]["latency_ms"] else "params_nonembedding"
    values: dict[str, Values] = {}
    points: dict[str, Point] = {}
    for row in rows:
        point = space.realise(partial(_choice, row))
        points.setdefault(point.architecture.hash, point)
        values.setdefault(point.architecture.hash, (float(row[cost]), float(row["valid_ppl"])))
    short = name.replace("_GPT2", "").replace("_", "-")
    return Table(
        name=f"lts-{short}",
        title=f"LTS GPT-2, {short}: share of the front of ({cost}, perplexity), {len(points)} rows",
        space=Rows(space, list(points.values())),
        values=lambda point: values[point.architecture.hash],
        evaluate=lambda point: (values[point.architecture.hash][0], None),
        score=share_of_front(list(values.values())),
        budgets=(10, 20, 30),
        targets={30: 1.0} if cost == "latency_ms" else {},  # the fronts of the random sets have more than 30 rows
    )


def _choice(row: dict[str, str], path: str, hole: Any) -> Any:
    field = path.rpartition(".")[2]
    if field == "width":
        return int(row["d_model"])
    if field == "times":
        return int(row["n_layer"])
    if field == "scale_embedding":
        return row["d_embed"] in ("-1", row["d_model"])
    if field == "dropout":
        return {"1": 0.1, "2": 0.2}.get(row["div_val"], 0.4)
    layer = int(path.partition("@")[2].partition(".")[0]) - 1
    return int(row["n_head" if field == "heads" else "d_inner"].split("-")[layer])
