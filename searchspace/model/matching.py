"""The plain Transformer with as many parameters as an architecture: its baseline.

It has pre-norm layers with multi-head attention and a GELU feed-forward block of four times the width, and rotary
positions. Vocabulary, features, classes, tying and dropout are those of the architecture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.tree import Block

STEP = 8  # widths are multiples of this number
NEAR = 0.03  # relative difference in size below which the proportions decide
DEEPEST = 200


@dataclass(frozen=True)
class _Candidate:
    width: int
    depth: int
    stacks: int  # each of `depth` layers; an encoder-decoder has two
    error: float  # relative error of the number of parameters

    @property
    def badness(self) -> tuple[float, int]:
        """2% of size count as much as a factor e of depth. The narrower candidate wins a tie."""
        return self.error / 0.02 + self._oddness, self.width

    @property
    def _oddness(self) -> float:
        """The distance from usual proportions; published Transformers have about sqrt(width) / 2.3 layers."""
        return abs(math.log(self.depth * self.stacks * 2.3 / math.sqrt(self.width))) + 0.5 * _head_oddness(
            self.width, _heads(self.width)
        )


def transformer_like(architecture: Architecture, length: int) -> Architecture:
    """The plain Transformer with as many parameters as `architecture`, to about 3%, for sequences of `length`.

    Of the candidates within 3% (or the nearest ones) the one with the most usual proportions is chosen. The result is
    deterministic. Raises SpaceError if values of the architecture do not fit together.
    """
    wanted = cost(architecture, length=length).parameters
    candidates = list(_candidates(architecture, wanted, length))
    nearest = min(candidate.error for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.error <= max(nearest, NEAR)]
    best = min(near, key=lambda candidate: candidate.badness)
    return _transformer(architecture.root, best.width, best.depth)


def _candidates(architecture: Architecture, wanted: int, length: int) -> Iterator[_Candidate]:
    """For each width, the depths around the wanted size."""
    one, two = _Sizes.of(architecture, 1, length), _Sizes.of(architecture, 2, length)
    stacks = 2 if architecture.root.name == "encoder_decoder" else 1
    for width in itertools.count(STEP, STEP):
        layer = two.at(width) - one.at(width)
        depth = 1 + (wanted - one.at(width)) // layer
        for near in {min(max(depth, 1), DEEPEST), min(max(depth + 1, 1), DEEPEST)}:
            parameters = one.at(width) + (near - 1) * layer
            yield _Candidate(width, near, stacks, abs(parameters - wanted) / wanted)
        if one.at(width) > wanted:  # wider ones are even larger
            return


@dataclass(frozen=True)
class _Sizes:
    """The parameters of plain Transformers of one depth. They are quadratic in the width, so three widths give all."""

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
    """The number of heads for which the width of a head is even and nearest to the usual one."""
    choices = [heads for heads in range(1, width // 2 + 1) if width % (2 * heads) == 0]
    return min(choices, key=lambda heads: (_head_oddness(width, heads), heads))


def _head_oddness(width: int, heads: int) -> float:
    return abs(math.log(width / heads / (32 if width < 512 else 64)))
