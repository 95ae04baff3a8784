"""Compares the weights that a tool found in an export with those of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from nas.exports.native import native
from nas.exports.winner import Winner

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = {"huggingface": "model.", "torch": "net."}  # of our names in a format
BY_VALUE = {"onnx"}  # formats whose graphs turn, cut and rename tensors
ABSENT = {"aotinductor"}  # the weights are compiled in, and nothing reads them again


def other_weights(winner: Winner, form: str, parts: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """The names of weights that differ from those of `winner`.

    parts: the tensors in the format `form`. The first part must have all weights; others, such as a decode step, may
    lack some.
    """
    if form in ABSENT:
        return []
    expected = _expected(winner, form)
    if form in BY_VALUE:
        return _by_value(expected, parts)
    lacking = [name for name in expected if name not in parts[0]]
    shared = ((name, part[name]) for part in parts for name in expected if name in part)
    return list(dict.fromkeys([*lacking, *(name for name, value in shared if not _same(expected[name], value))]))


def _expected(winner: Winner, form: str) -> Mapping[str, Tensor]:
    """The weights under the names that `form` gives them."""
    state = winner.weights()
    if form == "huggingface" and (known := native(winner, state)) is not None:
        return known.state
    return {PREFIX.get(form, "") + name: value for name, value in state.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.detach().double(), other.detach().double())


def _by_value(expected: Mapping[str, Tensor], parts: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """The names of incomplete tensors: ours, if the graph has only a part of one of their rows, and those of the graph,
    if most but not all of their numbers are from our weights.

    A graph may omit rows that it never reads, store a tensor twice, and have other numbers of its own.
    """
    ours, first = _numbers(expected), _numbers(parts[0])
    lacking = [name for name, value in expected.items() if _is_cut(value, first)]
    known = [ours, *(_numbers(expected, parts[0]) for _ in parts[1:])]
    return lacking + [name for part, at in zip(parts, known) for name, value in part.items() if _is_altered(value, at)]


def _numbers(*states: Mapping[str, Tensor]) -> Tensor:
    """All their numbers but NaN, sorted: `torch.isin` would sort them again for each tensor."""
    found = torch.cat([value.detach().flatten().float() for state in states for value in state.values()])
    return found[~found.isnan()].sort().values


def _among(value: Tensor, numbers: Tensor) -> Tensor:
    """Which numbers of `value` are among the sorted `numbers`: its shape, bool."""
    value = value.detach().float().contiguous()
    if not len(numbers):
        return torch.zeros_like(value, dtype=torch.bool)
    places = torch.searchsorted(numbers, value).clamp_(max=len(numbers) - 1)
    return numbers[places] == value


def _is_cut(value: Tensor, numbers: Tensor) -> bool:
    """Whether a row of `value` has both numbers that are among the sorted `numbers` and others; a vector is one row."""
    found = _among(value, numbers).view(len(value) if value.dim() > 1 else 1, -1)
    return bool((found.any(1) & ~found.all(1)).any())


def _is_altered(value: Tensor, numbers: Tensor) -> bool:
    """Whether more than half of `value`, but not all, is among the sorted `numbers`."""
    return bool(0.5 < _among(value, numbers).float().mean() < 1)
