"""The plain Transformer of the size of an architecture: the baseline that it has to beat at equal parameters.

Pre-norm layers of multi-head attention and a GELU feed-forward four times as wide, rotary positions; vocabulary,
features, classes, tying and dropout are those of the architecture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from searchspace.architecture import Architecture
from searchspace.build import cost
from searchspace.tree import Block

STEP = 8  # widths are multiples of it
NEAR = 0.01  # candidates this near in size, or as near as any, are chosen among by their proportions
DEEPEST = 200


@dataclass(frozen=True)
class _Candidate:
    width: int
    depth: int
    error: float  # relative, of the number of parameters

    @property
    def oddness(self) -> float:
        """How far from usual proportions: published Transformers have about sqrt(width) / 2.3 layers."""
        return abs(math.log(self.depth * 2.3 / math.sqrt(self.width))) + 0.5 * _head_oddness(
            self.width, _heads(self.width)
        )


def transformer_like(architecture: Architecture, length: int) -> Architecture:
    """The plain Transformer whose number of parameters is nearest to that of `architecture`, at sequences of `length`.

    Among those within one per cent the one with usual proportions. The same architecture always gives the same answer.
    """
    wanted = cost(architecture, length=length).parameters
    candidates = list(_candidates(architecture, wanted, length))
    nearest = min(candidate.error for candidate in candidates)
    near = [candidate for candidate in candidates if candidate.error <= max(nearest, NEAR)]
    best = min(near, key=lambda candidate: (candidate.oddness, candidate.error, candidate.width))
    return _transformer(architecture.root, best.width, best.depth)


def _candidates(architecture: Architecture, wanted: int, length: int) -> Iterator[_Candidate]:
    """For each width the depths around the wanted size: parameters are linear in the depth."""
    width = STEP
    while True:
        one, two = (cost(_transformer(architecture.root, width, depth), length=length).parameters for depth in (1, 2))
        best = 1 + math.floor((wanted - one) / (two - one))
        for depth in {min(max(depth, 1), DEEPEST) for depth in (best, best + 1)}:
            parameters = one + (depth - 1) * (two - one)
            yield _Candidate(width, depth, abs(parameters - wanted) / wanted)
        if one > wanted:  # wider ones are larger still
            return
        width += STEP


def _transformer(root: Block, width: int, depth: int) -> Architecture:
    heads = _heads(width)
    attention = _residual(Block("attention", {"heads": heads}))
    feed_forward = _residual(Block("feed_forward", {"expand": 4, "activation": "gelu"}))
    names = ("vocabulary", "features", "classes", "tie_embeddings", "scale_embedding", "dropout")
    fields = {name: root.fields[name] for name in names if name in root.fields}
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
