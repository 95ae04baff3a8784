"""The configurations of blocks that are checked, and what a model hands to a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from searchspace.contract import Capabilities, Choices, Context, Given, Streams
from searchspace.random_models import FROM_A_MODEL
from searchspace.registry import BlockType, Configured, block_type
from searchspace.testing import examples

B, C, S = 2, 16, 5  # batch, width, positions of the memory
LENGTHS = (1, 2, 7)
LONG = 131  # longer than every default window and chunk, and fits none of them evenly


@dataclass(frozen=True)
class Case:
    """One configuration of a block. varied: what differs from the defaults. causal: it must not look ahead.

    again: an earlier case has the same options, which are not the defaults, in the other direction. reader: the block,
    if it reads a lane; `configured` is then a sequence of a block with the defaults, which writes the lane, and it.
    """

    configured: Configured
    varied: str
    causal: bool
    again: bool = False
    reader: Configured | None = None

    @property
    def kind(self) -> BlockType:
        return (self.reader or self.configured).type

    @property
    def config(self) -> Any:
        return (self.reader or self.configured).config

    @property
    def can(self) -> Capabilities:
        return self.kind.module.capabilities

    @property
    def defaults(self) -> bool:
        """Whether every option has its default."""
        return self.varied == "defaults"

    @property
    def streams(self) -> bool:
        """Whether it reads in pieces."""
        return self.causal and self.can.streaming

    @property
    def group(self) -> str:
        """The block and its direction: the unit of a report."""
        return f"{self.kind.role}-{self.kind.name}-{'causal' if self.causal else 'both_ways'}"

    @property
    def id(self) -> str:
        return f"{self.kind.role}-{self.kind.name}-{self.varied}-{'causal' if self.causal else 'both_ways'}"

    def built(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """The block with new weights, in evaluation mode."""
        return self.configured.build().to(dtype).eval()

    def choices(self) -> Choices | None:
        """The choices by content of a first call, which later calls repeat."""
        return Choices() if self.can.selects else None


def cases(kinds: Iterable[BlockType]) -> list[Case]:
    """Every configuration to check: the defaults, then each option varied, where it looks back only and both ways."""
    found = []
    for kind in kinds:
        can: Capabilities = kind.module.capabilities
        both = can.bidirectional and ("causal" in kind.given or not can.causal)  # without the field, both are one
        ways = [True] * can.causal + [False] * both
        before: set[str] = set()
        for causal in ways:
            surroundings = Given(dim=C, causal=causal, memory=True)
            here = [
                _case(varied, configured, causal, again=varied in before, surroundings=surroundings)
                for varied, configured in examples(kind, surroundings)
            ]
            before |= {case.varied for case in here if not case.defaults}
            found += here
    return found


def _case(varied: str, configured: Configured, causal: bool, *, again: bool, surroundings: Given) -> Case:
    reads = configured.type.module.reads(configured.config) if configured.type.role == "block" else ()
    if not set(reads) - FROM_A_MODEL:
        return Case(configured, varied, causal, again=again)
    sequence, kind = block_type("sequence"), configured.type
    writer = Configured(kind, kind.config(**{name: getattr(surroundings, name) for name in kind.given}))
    both = Configured(sequence, sequence.config(of=(writer, configured)))
    return Case(both, varied, causal, again=again, reader=configured)


def again(choices: Choices | None) -> Choices | None:
    """The recorded choices, to be repeated."""
    if choices is not None:
        choices.rewind()
    return choices


def drawn(length: int, dtype: torch.dtype = torch.float64, batch: int = B) -> Tensor:
    """A random input: [batch, length, C]."""
    return torch.randn(batch, length, C, dtype=dtype)


def context(x: Tensor, **values: Any) -> Context:
    """The context that a model makes for x, [B, T, C]: positions after what a stream has read, an encoder's output."""
    streams = values.get("streams")
    generator = torch.Generator().manual_seed(1)
    memory = torch.randn(x.shape[0], S, C, generator=generator, dtype=torch.float64).to(x.dtype)
    values.setdefault("memory", memory)
    positions = torch.arange(x.shape[1]) if streams is None else streams.enter(x, values.get("padding"))
    return Context(positions=positions, segments=(positions // 4 % 2).expand(x.shape[0], -1), **values)


@torch.no_grad()
def stream(
    block: nn.Module,
    x: Tensor,
    pieces: Sequence[int],
    streams: Streams | None = None,
    position: Any = None,
) -> tuple[Tensor, Streams]:
    """Read x, [B, T, C], in pieces of these lengths, as a model does that generates -> (outputs, the state)."""
    streams = Streams() if streams is None else streams
    outs = []
    for piece in x.split(list(pieces), dim=1):
        outs.append(block(piece, context(piece, streams=streams, position=position)))
        streams.leave(piece.shape[1])
    return torch.cat(outs, dim=1), streams
