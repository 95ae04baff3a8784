"""The plain Transformer of the size of an architecture: the baseline that it has to beat at equal parameters.

Pre-norm layers of multi-head attention and a GELU feed-forward four times as wide, rotary positions; vocabulary,
features, classes, tying and dropout are those of the architecture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.tree import Block

STEP = 8  # widths are multiples of it
NEAR = 0.03  # candidates this near in size, or as near as any, are chosen among by their proportions
DEEPEST = 200


@dataclass(frozen=True)
class _Candidate:
    width: int
    depth: int
    stacks: int  # of `depth` layers each: an encoder-decoder has two
    error: float  # relative, of the number of parameters

    @property
    def badness(self) -> tuple[float, int]:
        """Two per cent of size weigh as much as a factor e of depth; ties go to the narrower."""
        return self.error / 0.02 + self._oddness, self.width

    @property
    def _oddness(self) -> float:
        """How far from usual proportions: published Transformers have about sqrt(width) / 2.3 layers."""
        return abs(math.log(self.depth * self.stacks * 2.3 / math.sqrt(self.width))) + 0.5 * _head_oddness(
            self.width, _heads(self.width)
        )


def transformer_like(architecture: Architecture, length: int) -> Architecture:
    """The plain Transformer with as many parameters as `architecture` (at sequences of `length`), to about 3%.

    Among those that near, or where none is among the nearest, the one with usual proportions. The same architecture
    always gives the same answer.
    """
    wanted = cost(architecture, length=length).parameters
    candidates = list(_candidates(architecture, wanted, length))
    nearest = min(candidate.error for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.error <= max(nearest, NEAR)]
    best = min(near, key=lambda candidate: candidate.badness)
    return _transformer(architecture.root, best.width, best.depth)


def _candidates(architecture: Architecture, wanted: int, length: int) -> Iterator[_Candidate]:
    """For each width the depths around the wanted size."""
    one, two = _Sizes.of(architecture, 1, length), _Sizes.of(architecture, 2, length)
    stacks = 2 if architecture.root.name == "encoder_decoder" else 1
    for width in itertools.count(STEP, STEP):
        layer = two.at(width) - one.at(width)
        depth = 1 + (wanted - one.at(width)) // layer
        for near in {min(max(depth, 1), DEEPEST), min(max(depth + 1, 1), DEEPEST)}:
            parameters = one.at(width) + (near - 1) * layer
            yield _Candidate(width, near, stacks, abs(parameters - wanted) / wanted)
        if one.at(width) > wanted:  # wider ones are larger still
            return


@dataclass(frozen=True)
class _Sizes:
    """The parameters of plain Transformers of one depth, which are quadratic in the width: three of them give all."""

    first: int
    difference: int
    second_difference: int

    @classmethod
    def of(cls, architecture: Architecture, depth: int, length: int) -> _Sizes:
        a, b, c = (
            cost(_transformer(architecture.root, width, depth), length=length).parameters
            for width in (STEP, 2 * STEP, 3 * STEP)
        )
        return cls(a, b - a, c - 2 * b + a)

    def at(self, width: int) -> int:
        n = width // STEP - 1
        return self.first + n * self.difference + n * (n - 1) // 2 * self.second_difference


def _transformer(root: Block, width: int, depth: int) -> Architecture:
    heads = _heads(width)
    attention = _residual(Block("attention", {"heads": heads}))
    feed_forward = _residual(Block("feed_forward", {"expand": 4, "activation": "gelu"}))
    names = ("vocabulary", "features", "classes", "tokens", "tie_embeddings", "scale_embedding", "embedding_start")
    fields = {name: root.fields[name] for name in (*names, "dropout") if name in root.fields}
    fields |= {"width": width, "position": Block("rotary", {})}
    if root.name == "encoder_decoder":
        memory = _residual(Block("attention", {"heads": heads, "over": "memory"}))
        fields |= {"encoder": (attention, feed_forward) * depth, "decoder": (attention, memory, feed_forward) * depth}
    else:
        fields |= {"body": (attention, feed_forward) * depth}
    return Architecture.from_block(Block(root.name, fields))


def _residual(block: Block) -> Block:
    return Block("residual", {"norm": Block("layer_norm", {}), "order": "pre", "of": (block,)})


def _heads(width: int) -> int:
    """The number of heads whose width is even and nearest to the usual one."""
    choices = [heads for heads in range(1, width // 2 + 1) if width % (2 * heads) == 0]
    return min(choices, key=lambda heads: (_head_oddness(width, heads), heads))


def _head_oddness(width: int, heads: int) -> float:
    return abs(math.log(width / heads / (32 if width < 512 else 64)))
