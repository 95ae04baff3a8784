"""NAS-Bench-Macro: all 6,561 words of eight letters, trained on CIFAR-10 (https://arxiv.org/abs/2103.11922).

A letter is a layer: 0 nothing, 1 a convolution of width 3 that expands 3 times, 2 one of width 5 that expands 6 times.
In our language the three are blocks whose order has no meaning. `feed_forward` takes the place of the layer that does
nothing: if it were left out, different words would be equal.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.quality.table import Table, Values, found, relative_hypervolume, scaled
from searchspace.space.point import Point
from searchspace.space.space import Space
from searchspace.tree import Choice

LETTERS = "012"
LAYERS = 8
SPACE = """
kind: decoder
width: 16
vocabulary: 16
body:
  - repeat:
      times: 8
      of: !choice
        each: true
        options:
          - feed_forward: {expand: 1}
          - convolution: {kernel: 3, kind: depthwise}
          - convolution: {kernel: 5, kind: depthwise}
"""
LABELS = {"feed_forward": "0", "convolution": "1", "convolution#2": "2"}
LAYER = Choice(tuple(LETTERS))


def tables() -> list[Table]:
    """(FLOPs, error), (parameters, error) and the error alone; and words with an interface of their own."""
    with gzip.open(found("nas-bench-macro", "nas-bench-macro_cifar10.json.gz"), "rt") as file:
        raw = json.load(file)
    space = Space.parse(SPACE)
    made = [_table(raw, space, cost) for cost in ("flops", "params")]
    made.append(_alone(raw, space))
    made.append(_words(raw))
    return made


def word(point: Point) -> str:
    """The letters of a point of the YAML space, in the order of the layers."""
    return "".join(LABELS[str(value)] for value in point.choices.values())


TARGETS = {
    "flops": {100: 0.990, 200: 0.997, 500: 0.9995},
    "params": {100: 0.992, 200: 0.998, 500: 0.9999},
}


def _table(raw: dict[str, Any], space: Space, cost: str) -> Table:
    rows = scaled({each: (row[cost], 100 - row["mean_acc"]) for each, row in raw.items()})
    return Table(
        name=f"macro-{cost}",
        title=f"nas-bench-macro ({'FLOPs' if cost == 'flops' else 'parameters'}, error)",
        space=space,
        values=lambda point: rows[word(point)],
        evaluate=lambda point: (rows[word(point)][0], None),
        score=relative_hypervolume(list(rows.values())),
        targets=TARGETS[cost],
    )


def _alone(raw: dict[str, Any], space: Space) -> Table:
    errors = {each: (100 - row["mean_acc"],) for each, row in raw.items()}
    best = min(errors.values())[0]
    return Table(
        name="macro-error",
        title="nas-bench-macro, error alone: optimum found",
        space=space,
        values=lambda point: errors[word(point)],
        score=lambda values: float(min(values)[0] <= best),
        objectives=1,
        targets={200: 1.0},
    )


@dataclass(frozen=True)
class Word:
    """An architecture of the table. Its letters are its hash."""

    hash: str


@dataclass(frozen=True)
class WordPoint:
    choices: dict[str, str]
    architecture: Word


class WordSpace:
    """All words of eight letters, with the smallest interface of a space. Figures of earlier versions used it."""

    def realise(self, choose: Callable[[str, Any], Any]) -> WordPoint:
        return self._point("".join(choose(f"layer{index}", LAYER) for index in range(LAYERS)))

    def sample(self, rng: random.Random, by: Literal["choices", "architectures"] = "choices") -> WordPoint:
        return self.realise(lambda path, hole: rng.choice(LETTERS))

    def mutate(self, point: WordPoint, rng: random.Random) -> WordPoint:
        letters, index = point.architecture.hash, rng.randrange(LAYERS)
        letter = rng.choice([letter for letter in LETTERS if letter != letters[index]])
        return self._point(letters[:index] + letter + letters[index + 1 :])

    def crossover(self, a: WordPoint, b: WordPoint, rng: random.Random) -> WordPoint:
        return self._point("".join(rng.choice(pair) for pair in zip(a.architecture.hash, b.architecture.hash)))

    @staticmethod
    def _point(letters: str) -> WordPoint:
        return WordPoint({f"layer{index}": letter for index, letter in enumerate(letters)}, Word(letters))


def _words(raw: dict[str, Any]) -> Table:
    rows: dict[str, Values] = scaled({each: (row["flops"], 100 - row["mean_acc"]) for each, row in raw.items()})
    return Table(
        name="macro-words",
        title="nas-bench-macro (FLOPs, error) as words, without costs: as benchmarks.quality_macro was",
        space=WordSpace(),
        values=lambda point: rows[point.architecture.hash],
        score=relative_hypervolume(list(rows.values())),
        targets=TARGETS["flops"],
    )
