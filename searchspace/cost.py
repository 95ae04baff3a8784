"""The cost of an architecture, computed without building it.

A block's `cost` reads like its `forward`: it is the sum of the costs of the block's parts. One multiply-add counts as
two FLOPs. Only matrix products and convolutions count, as in `torch.utils.flop_counter`, so the two give equal numbers.

A halting block decides at run time how many of its steps it takes. Everything that people see as "FLOPs" is
`Cost.expected_flops`: each halting block counts at its mean depth. For a trained trial this is the depth that training
measured (`Shape.at_depth`). Otherwise it is the depth of an untrained block. `halting_note` of
`searchspace.model.halting` states which of the two it was. `Cost.flops` counts every step.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

HALTING = "halting_steps"  # the metric that reports the mean depth of halting blocks


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The input that a cost is computed for: `batch` sequences of `length` positions, `memory` encoder positions.

    source: positions of the longer sequence that the next attention reads its keys from, or 0 if there is none.
    normed: whether the input is the result of a norm with parameters, in a residual that norms before its blocks.
    halting_steps: the measured mean depth of halting blocks; None stands for the depth of untrained blocks.
    """

    batch: int = 1
    length: int = 1024
    memory: int = 0
    source: int = 0
    normed: bool = False
    element_bytes: int = 4
    halting_steps: float | None = None

    @property
    def rows(self) -> int:
        """Positions in the whole batch."""
        return self.batch * self.length

    @property
    def later(self) -> Shape:
        """The same shape without what only the first block of several sees: the source and the norm before it."""
        return replace(self, source=0, normed=False) if self.source or self.normed else self

    def at_depth(self, metrics: Mapping[str, float | None] | None) -> Shape:
        """This shape with the mean depth of halting blocks that `metrics` report; unchanged if they report none."""
        measured = [value for name, value in (metrics or {}).items() if name.rpartition("/")[2] == HALTING]
        return replace(self, halting_steps=measured[0]) if measured and measured[0] is not None else self


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Costs that can be added.

    parameters: trainable numbers. idle_parameters: those that one position does not use, such as experts that are not
    chosen. flops: one forward pass, at most. training_flops: forward and backward pass, at most. expected_flops: one
    forward pass on average, if a block decides at run time what it computes. activation_bytes: memory that the forward
    pass keeps for the backward pass. state_bytes: memory that streaming keeps after `length` positions. growing_bytes:
    the part of it that has one entry for each position, or for each few. common: the parameters that blocks share, by
    key; they count once in a sum. choosing_flops: the part of `flops` that selects what to read; a second pass reuses
    the selection of the first. estimates: how many parts have numbers that depend on the data.
    """

    parameters: int = 0
    idle_parameters: int = 0
    flops: int = 0
    training_flops: int = 0
    expected_flops: int = 0
    activation_bytes: int = 0
    state_bytes: int = 0
    growing_bytes: int = 0
    common: frozenset[tuple[Hashable, int]] = field(default=frozenset(), repr=False)
    choosing_flops: int = field(default=0, repr=False)
    estimates: int = field(default=0, repr=False)

    def __add__(self, other: Cost) -> Cost:
        sums = [one + more for one, more in zip(_added_of(self), _added_of(other))]
        if not self.common or not other.common:
            return _cost(sums, self.common or other.common)
        return _cost(sums, self.common | other.common, twice=_numbers(self.common & other.common))

    @property
    def active_parameters(self) -> int:
        """The parameters that one position uses."""
        return self.parameters - self.idle_parameters

    @property
    def exact(self) -> bool:
        """Whether no number depends on the data."""
        return not self.estimates

    @property
    def expected_training_flops(self) -> int:
        """`training_flops` with halting blocks at their mean depth. Their backward pass counts in proportion."""
        return round(self.training_flops * self.expected_flops / self.flops) if self.flops else self.training_flops

    def numbers(self) -> dict[str, int]:
        """The costs under the names that every command prints; "flops" is `expected_flops`, see the module."""
        return {
            "parameters": self.parameters,
            "active_parameters": self.active_parameters,
            "flops": self.expected_flops,
            "training_flops": self.training_flops,
            "activation_bytes": self.activation_bytes,
            "state_bytes": self.state_bytes,
            "growing_bytes": self.growing_bytes,
            "maximum_flops": self.flops,
        }

    def times(self, count: int, *, shared: bool = False) -> Cost:
        """The cost of `count` of these in sequence; with `shared` they use one set of parameters."""
        if count == 1:
            return self
        products = {name: getattr(self, name) * count for name in ADDED}
        once = self.parameters if shared else _numbers(self.common)
        products["parameters"] = once + (self.parameters - once) * count
        products["idle_parameters"] = self.idle_parameters * (1 if shared else count)
        return Cost(**products, common=self.common)


ADDED = tuple(f.name for f in fields(Cost) if f.name != "common")
_added_of = attrgetter(*ADDED)
LABELS = {
    "parameters": "parameters",
    "active_parameters": "active parameters",
    "flops": "FLOPs",
    "training_flops": "training FLOPs",
    "activation_bytes": "activations",
    "state_bytes": "state",
    "growing_bytes": "state that grows",
    "maximum_flops": "FLOPs, every step",
}
"""What tables call each of `Cost.numbers`."""


def _cost(sums: Iterable[int], common: frozenset[tuple[Hashable, int]], twice: int = 0) -> Cost:
    """A cost of numbers in the order of `ADDED`, without the slow constructor. twice: parameters to count once less."""
    made = object.__new__(Cost)
    vars(made).update(zip(ADDED, sums), common=common)
    if twice:
        vars(made)["parameters"] -= twice
    return made


def _numbers(common: Iterable[tuple[Hashable, int]]) -> int:
    return sum(numbers for _, numbers in common)


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of `costs`. It adds numbers, because thousands of costs are added for every trial of a search."""
    sums = [0] * len(ADDED)
    shared: set[tuple[Hashable, int]] = set()
    twice = 0
    for cost in costs:
        sums = [number + more for number, more in zip(sums, _added_of(cost))]
        if cost.common:
            twice += _numbers(shared & cost.common)
            shared |= cost.common
    return _cost([_plain(number) for number in sums], frozenset(shared), twice)


def _plain(number: Any) -> Any:
    """A number of Python; what a block of the user's own costs may be one of NumPy or torch."""
    return number if type(number) is int else getattr(number, "item", lambda: number)()


def matmul(rows: int, inner: int, columns: int, *, count: int = 1, backward: int = 2) -> Cost:
    """`count` products [rows, inner] x [inner, columns]. `backward` says how many operands need a gradient."""
    flops = 2 * count * rows * inner * columns
    return Cost(flops=flops, training_flops=flops * (1 + backward), expected_flops=flops)


def linear(shape: Shape, inputs: int, outputs: int, *, bias: bool = True, rows: int | None = None) -> Cost:
    """The cost of `Linear(inputs, outputs)` on every row. It keeps its input for the backward pass."""
    rows = shape.rows if rows is None else rows
    return matmul(rows, inputs, outputs) + Cost(
        parameters=inputs * outputs + (outputs if bias else 0), activation_bytes=rows * inputs * shape.element_bytes
    )


def kept(shape: Shape, numbers: int) -> Cost:
    """The cost of keeping `numbers` elements for the backward pass."""
    return Cost(activation_bytes=numbers * shape.element_bytes)


def state(shape: Shape, numbers: int, *, growing: int = 0) -> Cost:
    """The cost of keeping `numbers` elements of each sequence while streaming, and more that grow with the length."""
    size = shape.batch * shape.element_bytes
    return Cost(state_bytes=(numbers + growing) * size, growing_bytes=growing * size)


def common(key: Hashable, numbers: int) -> Cost:
    """The cost of parameters that all blocks with this `key` share in a model; see `searchspace.sharing.shared`."""
    return Cost(parameters=numbers, common=frozenset({(key, numbers)}))
