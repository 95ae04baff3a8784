"""What an architecture costs, computed without building it.

A block's `cost` reads like its `forward`: a sum of the costs of its parts. FLOPs count a multiply-add as two and only
matrix products and convolutions, as `torch.utils.flop_counter` does, so that the two can be compared to the digit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The input a cost is asked for: `batch` sequences of `length` positions, `memory` encoder positions.

    `source`: positions of the longer sequence that the next attention reads its keys from; 0 when there is none.
    `halting_steps`: the mean depth that halting blocks were seen to use; None expects what they use untrained.
    """

    batch: int = 1
    length: int = 1024
    memory: int = 0
    source: int = 0
    element_bytes: int = 4
    halting_steps: float | None = None

    @property
    def rows(self) -> int:
        """Positions in the whole batch."""
        return self.batch * self.length


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Costs that add up.

    parameters: trainable numbers. flops: one forward pass, every optional step taken. training_flops: forward and
    backward. expected_flops: forward, with halting blocks at the depth they are expected to use. activation_bytes:
    what the forward pass keeps for the backward pass. state_bytes: what streaming keeps after `length` positions.
    common: those of the parameters, by key, that blocks share; they count once however often they are added.
    choosing_flops: those of `flops` that choose what to read, which a second pass takes over from the first.
    """

    parameters: int = 0
    flops: int = 0
    training_flops: int = 0
    expected_flops: int = 0
    activation_bytes: int = 0
    state_bytes: int = 0
    common: frozenset[tuple[Hashable, int]] = field(default=frozenset(), repr=False)
    choosing_flops: int = field(default=0, repr=False)

    def __add__(self, other: Cost) -> Cost:
        sums = {name: getattr(self, name) + getattr(other, name) for name in ADDED}
        sums["parameters"] -= _numbers(self.common & other.common)
        return Cost(**sums, common=self.common | other.common)

    def numbers(self) -> dict[str, int]:
        """What people ask for, by name."""
        return {name: getattr(self, name) for name in NUMBERS}

    def times(self, count: int, *, shared: bool = False) -> Cost:
        """`count` of these one after another; with `shared` they use one set of parameters."""
        products = {name: getattr(self, name) * count for name in ADDED}
        once = self.parameters if shared else _numbers(self.common)
        products["parameters"] = once + (self.parameters - once) * count
        return Cost(**products, common=self.common)


ADDED = tuple(f.name for f in fields(Cost) if f.name != "common")
NUMBERS = tuple(name for name in ADDED if name != "choosing_flops")


def _numbers(common: Iterable[tuple[Hashable, int]]) -> int:
    return sum(numbers for _, numbers in common)


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of `costs`."""
    return sum(costs, Cost())


def matmul(rows: int, inner: int, columns: int, *, count: int = 1, backward: int = 2) -> Cost:
    """`count` products [rows, inner] x [inner, columns]; `backward` of the two operands need a gradient."""
    flops = 2 * count * rows * inner * columns
    return Cost(flops=flops, training_flops=flops * (1 + backward), expected_flops=flops)


def linear(shape: Shape, inputs: int, outputs: int, *, bias: bool = True, rows: int | None = None) -> Cost:
    """A `Linear(inputs, outputs)` on every row; keeps its input for the backward pass."""
    rows = shape.rows if rows is None else rows
    return matmul(rows, inputs, outputs) + Cost(
        parameters=inputs * outputs + (outputs if bias else 0), activation_bytes=rows * inputs * shape.element_bytes
    )


def kept(shape: Shape, numbers: int) -> Cost:
    """`numbers` elements that the backward pass needs."""
    return Cost(activation_bytes=numbers * shape.element_bytes)


def common(key: Hashable, numbers: int) -> Cost:
    """Parameters that every block with this `key` in a model uses; see `searchspace.sharing.shared`."""
    return Cost(parameters=numbers, common=frozenset({(key, numbers)}))
