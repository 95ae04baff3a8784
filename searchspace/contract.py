"""The contract of a block: its configuration, its forward pass, its capabilities and its cost.

B batch, T time, C model width. A block maps [B, T, C] to [B, T, C]. Everything else it needs is in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from searchspace import apart
from searchspace.cost import Cost, Shape
from searchspace.lanes import GIVEN_LANES, Change, Lane
from searchspace.state import Streams
from searchspace.suggestions import nearest

GIVEN = "given"
OWN_POSITION = "own_position"  # the module of a block whose position is not that of the model


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
    source: can read its keys from a longer sequence, and then takes the lane `source`.
    turned: applies the rotation of the position to its queries and keys.
    changes_length: has a shorter output, and puts its padding, positions and lanes into the context.
    selects: selects by content what a position reads. If such a block is causal, no value and no gradient of the future
        reaches the past. But the future may change which part of the past is read, and so may a rounding error.
    pointwise: reads each position alone and nothing of the context but lanes of that position.
    ragged: keeps the documents of a row apart itself, and reads pieces whose padding differs between sequences. Other
        blocks are called for one document, or one sequence, at a time; see `searchspace.apart`.
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
    ragged: bool = False


class PositionModule(Protocol):
    """How positions enter a model: in the embedding, as a rotation of queries and keys, or in attention scores."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Applied to the input. x: [B, T, C], positions: [T] or [B, T] -> [B, T, C]."""

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Applied to queries and to keys. heads: [B, H, T, D], positions: [T] or [B, T] -> [B, H, T, D]."""

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Added to the scaled scores. queries: [Tq], keys: [Tk], both positions -> [H, Tq, Tk], or None for nothing.

        It depends only on the distance, so a window can compute it once for all its queries.
        """


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


@dataclass(init=False)
class Context:
    """Everything that a model passes to its blocks in addition to x.

    padding: [B, T], True at real positions; None if all are real.
    positions: [T] or [B, T] of int64.
    position: the module that adds positions.
    documents: [B, T] of int64, the document that a position belongs to; a row may hold several, each in one run of
        positions. They do not read one another, and their positions start again.
    streams: the state while reading in pieces.
    losses: auxiliary losses by name; each is a weighted tensor of any shape whose sum is added to the loss.
    statistics: what blocks report by name, such as the halting depth: tensors of any shape.
    lanes: the tensors that blocks pass to later blocks, by name. `Context(memory=...)` gives those of `GIVEN_LANES`.
    choices: the selections of blocks, if a block calls others twice.
    callers: the blocks that asked `first_time` in this pass.
    """

    padding: Tensor | None
    positions: Tensor | None
    position: PositionModule | None
    documents: Tensor | None
    streams: Streams | None
    losses: dict[str, list[Tensor]]
    statistics: dict[str, list[Tensor]]
    lanes: dict[str, Lane]
    choices: Choices | None
    callers: set[int]

    def __init__(
        self,
        padding: Tensor | None = None,
        positions: Tensor | None = None,
        position: PositionModule | None = None,
        documents: Tensor | None = None,
        streams: Streams | None = None,
        losses: dict[str, list[Tensor]] | None = None,
        statistics: dict[str, list[Tensor]] | None = None,
        lanes: dict[str, Lane] | None = None,
        choices: Choices | None = None,
        callers: set[int] | None = None,
        **given_lanes: Tensor | None,
    ) -> None:
        self.padding, self.positions, self.position = padding, positions, position
        self.documents, self.streams, self.choices = documents, streams, choices
        self.losses = {} if losses is None else losses
        self.statistics = {} if statistics is None else statistics
        self.callers = set() if callers is None else callers
        self.lanes = {} if lanes is None else lanes
        for name, tensor in given_lanes.items():
            if name not in GIVEN_LANES:
                raise TypeError(f"A context has no {name!r}.{nearest(name, [*vars(self), *GIVEN_LANES])}")
            if tensor is not None:
                self.write(name, tensor, GIVEN_LANES[name])

    def write(self, name: str, tensor: Tensor, axes: str, module: nn.Module | None = None) -> None:
        """Put a tensor with these axes into the lane `name`, in place of what is there."""
        self.lanes[name] = Lane(tensor, axes, module)

    def swap(self, **lanes: Lane | None) -> dict[str, Lane | None]:
        """Puts these lanes into the context, or takes away those that are None -> what was there, to swap back."""
        before = {name: self.lanes.pop(name, None) for name in lanes}
        self.lanes.update({name: lane for name, lane in lanes.items() if lane is not None})
        return before

    def get(self, name: str) -> Tensor | None:
        """The tensor of the lane `name`; None if nothing was written."""
        lane = self.lanes.get(name)
        return None if lane is None else lane.tensor

    def read(self, name: str) -> Tensor:
        """The tensor of the lane `name`. Raises ValueError if nothing was written."""
        if name not in self.lanes:
            raise ValueError(f"A block reads the lane {name!r}, but nothing wrote it.{nearest(name, self.lanes)}")
        return self.lanes[name].tensor

    def mapped(self, change: Change) -> Context:
        """A copy whose tensors are `change(tensor, axes)`. Losses and statistics go into the same lists."""
        time = None if self.positions is None else "T" if self.positions.dim() == 1 else "B T"
        of = lambda tensor, axes: None if tensor is None else change(tensor, axes)  # noqa: E731
        return replace(
            self,
            padding=of(self.padding, "B T"),
            positions=of(self.positions, time),
            documents=of(self.documents, "B T"),
            lanes={name: replace(lane, tensor=change(lane.tensor, lane.axes)) for name, lane in self.lanes.items()},
        )

    def before_norm(self, x: Tensor) -> Unnormed:
        """What a residual normed to get x, [B, T, C]; x itself if it is the result of another block.

        A block that keeps inputs as a memory keeps the tensor before the norm and norms it when it reads the memory. So
        the norm learns from the keys of the memory too.
        """
        if self.get("normed") is not x:
            return Unnormed(x, x)
        return Unnormed(self.lanes["unnormed"].tensor, x, self.lanes["unnormed"].module)

    def slot(self, block: Primitive, *, causal: bool = True) -> dict[str, Tensor] | None:
        """The state of this call of `block` while streaming (empty in the first piece); None if it is not streaming.

        Raises ValueError if the block is not `causal`, because it would need input that was not read yet.
        """
        if self.streams is None:
            return None
        if not causal:
            raise ValueError("A block that looks both ways cannot read a sequence in pieces; only a causal one can.")
        return self.streams.slot(block)

    def choose(self, choose: Callable[[], Tensor]) -> Tensor:
        """The result of `choose`, a tensor without a gradient; in a second pass the result of the first pass."""
        return choose() if self.choices is None else self.choices.of(choose)

    def first_time(self, block: nn.Module) -> bool:
        """Whether `block` asks this for the first time in this pass through the model."""
        asked = id(block) in self.callers
        self.callers.add(id(block))
        return not asked

    def report(self, name: str, value: Tensor) -> None:
        """Adds `value`, of any shape, to the statistics called `name`."""
        self.statistics.setdefault(name, []).append(value.detach())

    def add_loss(self, name: str, value: Tensor) -> None:
        """Adds the sum of `value`, of any shape and already weighted, to the loss of the model."""
        self.losses.setdefault(name, []).append(value)

    def loss(self) -> Tensor:
        """The sum of the auxiliary losses: a scalar, 0 if there are none."""
        every = [value.sum() for values in self.losses.values() for value in values]
        return torch.stack(every).sum() if every else torch.zeros(())


class Primitive(nn.Module):
    """The base class of blocks. A subclass takes one frozen configuration and registers with `registry.primitive`."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    path: str  # of the block in its model, such as `body.0.of.1`; only blocks of a model have one

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        """Calls `forward` with the block's own position, and for one document or sequence at a time where it must."""
        position: Any = self._modules.get(OWN_POSITION)
        if position is not None:
            context = replace(context, position=position)
        if not self.is_ragged:
            if context.documents is not None:
                return apart.documents(super().__call__, x, context)
            if context.streams is not None and context.streams.rows:
                context.streams.share(self)
                return apart.rows(super().__call__, x, context)
        return super().__call__(x, context)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        raise NotImplementedError

    @property
    def is_ragged(self) -> bool:
        """Whether it keeps documents, and sequences that have read different numbers of positions, apart itself."""
        return self.capabilities.pointwise or self.capabilities.ragged

    @classmethod
    def able(cls, fields: Mapping[str, Any]) -> Capabilities:
        """What a block with these fields of a configuration can do: the declared capabilities, unless an option changes
        them.
        """
        return cls.capabilities

    @classmethod
    def reads(cls, config: Any) -> tuple[str, ...]:
        """The lanes that a block with `config` needs; an earlier block, or the model, must write them."""
        return ()

    @classmethod
    def writes(cls, config: Any) -> tuple[str, ...]:
        """The lanes that a block with `config` writes for later blocks."""
        return ()

    @classmethod
    def states(cls, config: Any) -> Mapping[str, str]:
        """The axes of the tensors that a block with `config` keeps while streaming; see `searchspace.state.kind`."""
        return {}

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

    def after_step(self) -> None:
        """Called in training after each step of the optimiser, without gradients; what a block counts is in buffers."""
