"""What every block promises: its configuration, its forward pass, its capabilities and its cost.

B batch, T time, C model width. A block maps [B, T, C] to [B, T, C]; what it needs beside its input is in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from searchspace.cost import Cost, Shape

GIVEN = "given"


def given(default: Any = MISSING) -> Any:
    """A configuration field that the surrounding model fills in (`dim`, `causal`, ...); nobody writes it in YAML."""
    return field(default=default, metadata={GIVEN: True})


@dataclass(frozen=True)
class Given:
    """What a model hands down to the blocks in it: width, whether they may not look ahead, an encoder or none.

    widens: its last block may leave an output wider than its input.
    """

    dim: int
    causal: bool = False
    memory: bool = False
    widens: bool = False


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a block can do. `causal`: never looks ahead when told so; `bidirectional`: can look both ways; `cross`: can
    attend to an encoder's output; `streaming`: can read its input in pieces; `source`: can read its keys from a longer
    sequence, and then clears `context.source`; `turned`: lets the position turn its queries and keys; `changes_length`:
    leaves the padding, the positions and the segments of its shorter output in the context; `selects`: chooses by
    content what a position reads. Then a causal block lets no value and no gradient of the future reach the past, but
    what the past reads of itself may depend on the future, and a rounding may change the choice; `pointwise`: reads
    each position by itself and nothing of the context. A block that holds others is so when they are."""

    causal: bool = True
    bidirectional: bool = True
    cross: bool = False
    streaming: bool = True
    source: bool = False
    turned: bool = False
    changes_length: bool = False
    selects: bool = False
    pointwise: bool = False


class Streams:
    """The memory of a model that reads a sequence in pieces.

    Every call of a streaming block owns one slot, a dict of tensors with the batch first; slots follow the order of the
    calls, which is the same for every piece.
    """

    def __init__(self) -> None:
        self.length = 0  # positions read so far
        self.slots: list[dict[str, Tensor]] = []
        self._next = 0

    def rewind(self) -> None:
        """Start a new piece: the next `slot` is the first one again."""
        self._next = 0

    def slot(self) -> dict[str, Tensor]:
        if self._next == len(self.slots):
            self.slots.append({})
        self._next += 1
        return self.slots[self._next - 1]

    def reorder(self, index: Tensor) -> None:
        """Permute the batch of every state, as beam search does; index: [B] of int64."""
        for slot in self.slots:
            for name, state in slot.items():
                slot[name] = state.index_select(0, index)

    def nbytes(self) -> int:
        return sum(state.nbytes for slot in self.slots for state in slot.values())


class PositionModule(Protocol):
    """How positions enter: added to the embedding, turned into queries and keys, or added to attention scores."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] -> [B, T, C], at the input."""

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """heads: [B, H, T, D], a query or a key -> the same shape, inside attention."""

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """queries: [Tq], keys: [Tk] positions -> [H, Tq, Tk] to add to the scaled scores, or None.

        It depends on the distance alone, so that a window can ask for it once for all its queries.
        """


@dataclass(frozen=True)
class Source:
    """A sequence that was pooled: x [B, S, C], its positions [S], its padding and segments [B, S] or None."""

    x: Tensor
    positions: Tensor
    padding: Tensor | None = None
    segments: Tensor | None = None


class Choices:
    """What blocks chose by content, in the order of their calls, so that a second pass chooses alike."""

    def __init__(self, outer: Choices | None = None) -> None:
        self._outer = outer  # asked before anything is chosen anew, where a second pass has one of its own
        self._made: list[Tensor] = []
        self._next: int | None = None

    def rewind(self) -> None:
        """From now on give what was chosen, from the first on."""
        self._next = 0

    def of(self, choose: Callable[[], Tensor]) -> Tensor:
        if self._next is None:
            self._made.append(choose() if self._outer is None else self._outer.of(choose))
            return self._made[-1]
        self._next += 1
        return self._made[self._next - 1]


@dataclass
class Context:
    """What travels beside x through a model.

    padding: [B, T], True at real positions, None when all are real. positions: [T] int64. memory: [B, S, C], the
    encoder's output, and memory_padding: [B, S]. streams: set while reading in pieces (then padding is None).
    losses: auxiliary losses, scalars, already weighted. statistics: scalars a block reports, such as halting depth.
    segments: [B, T] int64, which part of the input (such as the first or second sentence) a position belongs to; a
    negative one belongs to all. source: a longer sequence whose keys the next attention reads instead of x's, where x
    was pooled from it; it takes it, so that those after it read x.
    finals: the last states of the encoder's recurrent blocks in order, which the decoder's may start from.
    choices: what blocks choose by content, where a block calls others twice.
    """

    padding: Tensor | None = None
    positions: Tensor | None = None
    position: PositionModule | None = None
    memory: Tensor | None = None
    memory_padding: Tensor | None = None
    streams: Streams | None = None
    losses: list[Tensor] = field(default_factory=list)
    statistics: dict[str, list[Tensor]] = field(default_factory=dict)
    segments: Tensor | None = None
    source: Source | None = None
    finals: list[dict[str, Tensor]] = field(default_factory=list)
    choices: Choices | None = None

    def take_source(self) -> Source | None:
        """The longer sequence to read keys from, if any; the next block reads its own input again."""
        source, self.source = self.source, None
        return source

    def slot(self, *, causal: bool = True) -> dict[str, Tensor] | None:
        """This call's state while streaming (empty before the first piece), else None.

        Raises ValueError for a block that is not `causal`: it would need what has not been read yet.
        """
        if self.streams is None:
            return None
        if not causal:
            raise ValueError("A block that looks both ways cannot read a sequence in pieces; only a causal one can.")
        return self.streams.slot()

    def choose(self, choose: Callable[[], Tensor]) -> Tensor:
        """What `choose` gives, a tensor without a gradient; in a second pass what it gave in the first."""
        return choose() if self.choices is None else self.choices.of(choose)

    def report(self, name: str, value: Tensor) -> None:
        self.statistics.setdefault(name, []).append(value.detach())

    def loss(self) -> Tensor:
        """The sum of the auxiliary losses, a scalar."""
        return torch.stack(self.losses).sum() if self.losses else torch.zeros(())


class Primitive(nn.Module):
    """A block. Subclasses take one frozen configuration dataclass and register with `@primitive` (see `registry`)."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        raise NotImplementedError

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        """The cost of one call of a block with `config` on an input of `shape`."""
        raise NotImplementedError

    @classmethod
    def after(cls, config: Any, shape: Shape) -> Shape:
        """The shape of its output."""
        return shape

    @classmethod
    def widening(cls, fields: Mapping[str, Any]) -> int:
        """How many times as wide as its input its output is, by the fields of its configuration."""
        return 1
