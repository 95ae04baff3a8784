"""Invented tables: functions with interactions between layers, so that a sum over layers predicts them badly.

They need no data, and they were not used to choose any strategy or setting. Each has two objectives, a cost and an
error; a strategy learns both from evaluations. A word lists the options of a point, one for each layer.

- `cell`: six edges of a small graph, as in NAS-Bench-201 (https://arxiv.org/abs/2001.00326). The error depends on the
  deepest path, and is 90 % without any path.
- `trap`: two layers are good only together; one of them alone is worse than none.
- `order`: the order of the kinds of layers matters, and whether they alternate.
- `pairs`: random effects of half of all pairs of layers, and no effects of single layers.
- `triples`: small effects of single layers, larger ones of pairs and triples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.quality.table import Table, Values, relative_hypervolume, scaled
from searchspace.language.holes import labels
from searchspace.space.point import Point
from searchspace.space.space import Space
from searchspace.tree import Choice

Word = Sequence[int]
OPTIONS = (
    "feed_forward: {expand: 1}",
    "feed_forward: {expand: 2}",
    "convolution: {kernel: 3, kind: depthwise}",
    "convolution: {kernel: 5, kind: depthwise}",
    "attention: {heads: 2}",
)
HEAD = """
kind: decoder
width: 16
vocabulary: 16
body:
  - repeat:
      times: %d
      of: !choice
        each: true
        options:
"""
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
NONE, SKIP, POOL = 0, 1, 4
DEPTH = (0.0, 0.0, 1.0, 1.6, 0.3)  # what an edge adds to its path: none, skip, two convolutions, pooling
WORK = (0.0, 0.02, 0.35, 1.0, 0.05)
NOISE = 0.3 * np.random.default_rng(0).standard_normal((5,) * len(EDGES))  # fixed for each word
PRICE = (0.3, 0.5, 1.0, 1.3)  # of a layer in `order`


def tables() -> list[Table]:
    return [
        _table("cell", 6, 5, cell),
        _table("trap", 8, 3, trap),
        _table("order", 7, 4, order),
        _table("pairs", 8, 3, interactions(8, 3, {2: (1.0, 0.5)}, seed=3)),
        _table("triples", 8, 3, interactions(8, 3, {1: (0.3, 1.0), 2: (1.0, 0.5), 3: (0.6, 0.15)}, seed=0)),
    ]


def cell(word: Word) -> Values:
    """(work, error in per cent) of a graph with four nodes."""
    paths: dict[int, list[list[int]]] = {0: [[]]}
    for node in (1, 2, 3):
        used = [(start, word[edge]) for edge, (start, end) in enumerate(EDGES) if end == node and word[edge] != NONE]
        paths[node] = [[*path, kind] for start, kind in used for path in paths[start]]
    work = sum(WORK[kind] for kind in word)
    if not paths[3]:
        return work, 90.0
    depth = max(sum(DEPTH[kind] for kind in path) for path in paths[3])
    around = any(set(path) == {SKIP} for path in paths[3])  # a residual connection
    quality = 72 * (1 - math.exp(-depth / 1.3)) + 1.2 * math.log(len(paths[3])) + 1.5 * (around and depth > 1.5)
    return work, 80 - quality + 2 * list(word).count(POOL) + float(NOISE[tuple(word)])


def trap(word: Word) -> Values:
    """Options 2 and 2 of a pair of layers are the best pair, and one 2 is the worst choice."""
    pairs = list(zip(word[::2], word[1::2], strict=True))
    error = sum(0.0 if pair == (2, 2) else 0.5 + 0.25 * pair.count(2) + 0.05 * pair[0] for pair in pairs)
    return float(sum(4 if option == 0 else 1 + option for option in word)), error


def order(word: Word) -> Values:
    """Options 2 and 3 have diminishing returns; an option 1 before them, changes, and a last layer of 0 help."""
    heavy = [place for place, option in enumerate(word) if option >= 2]
    light = [place for place, option in enumerate(word) if option == 1]
    quality = 1 - math.exp(-len(heavy) / 1.5) + 0.06 * sum(a != b for a, b in itertools.pairwise(word))
    quality += 0.25 * bool(heavy and light and light[0] < heavy[0]) + 0.15 * (word[-1] == 0)
    return sum(PRICE[option] for option in word), -quality


def interactions(
    layers: int, options: int, kinds: dict[int, tuple[float, float]], seed: int
) -> Callable[[Word], Values]:
    """A random cost for each layer and option, and as the error a sum of random tables of several layers at once.

    kinds: by the number of layers in a table, (standard deviation of its entries, share of the tables that exist).
    """
    rng = np.random.default_rng(seed)
    terms = [
        (places, spread * rng.standard_normal((options,) * count))
        for count, (spread, share) in kinds.items()
        for places in itertools.combinations(range(layers), count)
        if rng.random() < share
    ]
    costs = rng.random((layers, options))

    def values(word: Word) -> Values:
        cost = sum(costs[place, option] for place, option in enumerate(word))
        return float(cost), float(sum(table[tuple(word[place] for place in places)] for places, table in terms))

    return values


def _table(name: str, layers: int, options: int, function: Callable[[Word], Values]) -> Table:
    lines = [f"          - {option}\n" for option in OPTIONS[:options]]
    space = Space.parse(HEAD % layers + "".join(lines))
    holes = {path: hole for path, hole in space.dimensions.items() if isinstance(hole, Choice)}
    places = {path: {label: place for place, label in enumerate(labels(hole))} for path, hole in holes.items()}
    rows = scaled({word: function(word) for word in itertools.product(range(options), repeat=layers)})

    def values(point: Point) -> Values:
        return rows[tuple(places[path][str(label)] for path, label in point.choices.items())]

    return Table(
        name=f"invented-{name}",
        title=f"invented: {name}, {len(rows):,} points",
        space=space,
        values=values,
        score=relative_hypervolume(list(rows.values())),
        budgets=(25, 50, 100, 200),
    )
