"""The contract of a block: its configuration, its forward pass, its capabilities and its cost.

B batch, T time, C model width. A block maps [B, T, C] to [B, T, C]. Everything else it needs is in the context.
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
    """A configuration field that the surrounding model fills in (`dim`, `causal`, ...). It is never written in YAML."""
    return field(default=default, metadata={GIVEN: True})


@dataclass(frozen=True)
class Given:
    """The values that a model hands down to its blocks.

    dim: the width. causal: the blocks must not look ahead. memory: there is the output of an encoder to attend to.
    widens: the output of the last block may be wider than its input.
    """

    dim: int
    causal: bool = False
    memory: bool = False
    widens: bool = False


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a block can do. A block that contains others has a capability if all of them have it.

    causal: does not look ahead if its configuration says `causal`.
    bidirectional: can look in both directions.
    cross: can attend to the output of an encoder.
    streaming: can read its input in pieces.
    source: can read its keys from a longer sequence, and then clears `context.source`.
    turned: applies the rotation of the position to its queries and keys.
    changes_length: has a shorter output, and puts its padding, positions and segments into the context.
    selects: selects by content what a position reads. If such a block is causal, no value and no gradient of the future
        reaches the past. But the future may change which part of the past is read, and so may a rounding error.
    pointwise: reads each position alone and nothing of the context.
    """

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
    """The state of a model that reads a sequence in pieces.

    Each call of a streaming block owns one slot: a dict of tensors whose first dimension is the batch. Slots are in the
    order of the calls, which is the same for every piece.
    """

    def __init__(self) -> None:
        self.length = 0  # positions read so far
        self.slots: list[dict[str, Tensor]] = []
        self._next = 0

    def rewind(self) -> None:
        """Starts a new piece: the next `slot` is the first one again."""
        self._next = 0

    def slot(self) -> dict[str, Tensor]:
        """The slot of the next call; it is empty in the first piece."""
        if self._next == len(self.slots):
            self.slots.append({})
        self._next += 1
        return self.slots[self._next - 1]

    def reorder(self, index: Tensor) -> None:
        """Permutes the batch of every state, as beam search does; index: [B] of int64."""
        for slot in self.slots:
            for name, state in slot.items():
                slot[name] = state.index_select(0, index)

    def detach(self) -> None:
        """Cuts every state off from the graph of earlier positions, between the pieces of truncated backpropagation.

        The next piece still reads the states, and its gradients end there.
        """
        for slot in self.slots:
            for name, state in slot.items():
                slot[name] = state.detach()

    def nbytes(self) -> int:
        """The memory of all states in bytes."""
        return sum(state.nbytes for slot in self.slots for state in slot.values())


class PositionModule(Protocol):
    """How positions enter a model: in the embedding, as a rotation of queries and keys, or in attention scores."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Applied to the input. x: [B, T, C], positions: [T] -> [B, T, C]."""

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Applied to queries and to keys. heads: [B, H, T, D], positions: [T] -> [B, H, T, D]."""

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Added to the scaled scores. queries: [Tq], keys: [Tk], both positions -> [H, Tq, Tk], or None for nothing.

        It depends only on the distance, so a window can compute it once for all its queries.
        """


@dataclass(frozen=True)
class Source:
    """The sequence before pooling. x: [B, S, C], positions: [S], padding and segments: [B, S] or None."""

    x: Tensor
    positions: Tensor
    padding: Tensor | None = None
    segments: Tensor | None = None


@dataclass(frozen=True)
class Unnormed:
    """The input of a residual before and after the norm in front of its blocks, x and normed: [B, T, C].

    module: the norm; None if nothing was normed, and then both tensors are one.
    """

    x: Tensor
    normed: Tensor
    module: nn.Module | None = None

    def norm(self, y: Tensor, *, constant: bool = False) -> Tensor:
        """The norm of y: [B, N, C]. If `constant`, its parameters get no gradient."""
        if self.module is None:
            return y
        if not constant:
            return self.module(y, Context())
        parameters = {name: parameter.detach() for name, parameter in self.module.named_parameters()}
        return torch.func.functional_call(self.module, parameters, (y, Context()))


class Choices:
    """The selections that blocks made by content, in the order of their calls, so that a second pass repeats them."""

    def __init__(self, outer: Choices | None = None) -> None:
        self._outer = outer  # the selections of the pass around this one, which come first
        self._made: list[Tensor] = []
        self._next: int | None = None

    def rewind(self) -> None:
        """Starts a second pass: `of` returns the recorded selections from the first on."""
        self._next = 0

    def of(self, choose: Callable[[], Tensor]) -> Tensor:
        """The next selection, of any shape: in the first pass from `choose`, in a second pass the recorded one."""
        if self._next is None:
            self._made.append(choose() if self._outer is None else self._outer.of(choose))
            return self._made[-1]
        self._next += 1
        return self._made[self._next - 1]


@dataclass
class Context:
    """Everything that a model passes to its blocks in addition to x.

    padding: [B, T], True at real positions; None if all are real.
    positions: [T] of int64.
    position: the module that adds positions.
    memory: [B, S, C], the output of the encoder. memory_padding: [B, S], its padding.
    streams: the state while reading in pieces; then padding is None.
    losses: auxiliary losses, weighted scalars.
    statistics: scalars that blocks report, such as the halting depth.
    segments: [B, T] of int64, the part of the input that a position belongs to; a negative number belongs to all parts.
    global_positions: [B, T] of bool, True at positions that read all others and that all others read, for blocks that
        ask for them (`longformer_attention: {global_at: context}`).
    source: the sequence that x was pooled from; the next attention takes it and reads its keys from it.
    unnormed: the input of the residual around a block, if the residual norms it before its blocks; see `before_norm`.
    finals: the last states of the encoder's recurrent blocks, in order; those of the decoder may start from them.
    choices: the selections of blocks, if a block calls others twice.
    callers: the blocks that asked `first_time` in this pass.
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
    global_positions: Tensor | None = None
    source: Source | None = None
    unnormed: Unnormed | None = None
    finals: list[dict[str, Tensor]] = field(default_factory=list)
    choices: Choices | None = None
    callers: set[int] = field(default_factory=set)

    def take_source(self) -> Source | None:
        """The longer sequence to read keys from, or None. After this call, blocks read their own input again."""
        source, self.source = self.source, None
        return source

    def before_norm(self, x: Tensor) -> Unnormed:
        """What a residual normed to get x, [B, T, C]; x itself if it is the result of another block.

        A block that keeps inputs as a memory keeps the tensor before the norm and norms it when it reads the memory. So
        the norm learns from the keys of the memory too.
        """
        return self.unnormed if self.unnormed is not None and self.unnormed.normed is x else Unnormed(x, x)

    def slot(self, *, causal: bool = True) -> dict[str, Tensor] | None:
        """The state of this call while streaming (empty in the first piece); None if the model is not streaming.

        Raises ValueError if the block is not `causal`, because it would need input that was not read yet.
        """
        if self.streams is None:
            return None
        if not causal:
            raise ValueError("A block that looks both ways cannot read a sequence in pieces; only a causal one can.")
        return self.streams.slot()

    def choose(self, choose: Callable[[], Tensor]) -> Tensor:
        """The result of `choose`, a tensor without a gradient; in a second pass the result of the first pass."""
        return choose() if self.choices is None else self.choices.of(choose)

    def first_time(self, block: nn.Module) -> bool:
        """Whether `block` asks this for the first time in this pass through the model."""
        asked = id(block) in self.callers
        self.callers.add(id(block))
        return not asked

    def report(self, name: str, value: Tensor) -> None:
        """Adds the scalar `value` to the statistics called `name`."""
        self.statistics.setdefault(name, []).append(value.detach())

    def loss(self) -> Tensor:
        """The sum of the auxiliary losses: a scalar, 0 if there are none."""
        return torch.stack(self.losses).sum() if self.losses else torch.zeros(())


class Primitive(nn.Module):
    """The base class of blocks. A subclass takes one frozen configuration and registers with `registry.primitive`."""

    capabilities: ClassVar[Capabilities] = Capabilities()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        raise NotImplementedError

    @classmethod
    def able(cls, fields: Mapping[str, Any]) -> Capabilities:
        """What a block with these fields of a configuration can do: the declared capabilities, unless an option changes
        them.
        """
        return cls.capabilities

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        """The cost of one call of a block with `config` on an input of `shape`."""
        raise NotImplementedError

    @classmethod
    def after(cls, config: Any, shape: Shape) -> Shape:
        """The shape of the output of a block with `config` for an input of `shape`."""
        return shape

    @classmethod
    def widening(cls, fields: Mapping[str, Any]) -> int:
        """The width of the output divided by the width of the input, for the fields of a configuration."""
        return 1
