"""Rows of a space as features in which layers share the learned model.

Each hole gives two sets of columns. `whole` describes it over all of its copies: the sum of its numbers or the count of
each option, and how far these lie towards the end of the model. `layer` describes each copy alone. Both are scaled so
that two random points have a mean squared distance of 1 for each hole. N rows, G holes without their copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nas.strategies._surrogate.codes import Codes

SAMPLE = 256  # random rows from which the scales are taken


@dataclass(frozen=True)
class Rows:
    """Features of N rows: whole [N, A] and layer [N, L].

    earlier [N, S, M]: what S earlier studies predict of the M objectives; None if there are none.
    """

    whole: np.ndarray
    layer: np.ndarray
    earlier: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.whole)

    def take(self, places: np.ndarray | list[int]) -> Rows:
        return Rows(self.whole[places], self.layer[places], None if self.earlier is None else self.earlier[places])

    def joined(self, other: Rows) -> Rows:
        both = self.earlier is not None and other.earlier is not None
        earlier = np.concatenate([self.earlier, other.earlier]) if both else None
        return Rows(np.vstack([self.whole, other.whole]), np.vstack([self.layer, other.layer]), earlier)


class Features:
    """Makes features of rows. costs: of how many costs each row tells more.

    groups: how many holes there are without their copies, then the costs; the last one is the fidelity. whole_groups
    [A] and layer_groups [L] tell the hole of each column.
    """

    def __init__(self, codes: Codes, costs: int = 0) -> None:
        self.codes, self.costs = codes, costs
        self.groups = len(codes.names) + costs + 1
        self._members = [np.flatnonzero(codes.groups == group) for group in range(len(codes.names))]
        self._sized = [self._columns(columns) for columns in self._members]
        self.whole_groups, self.layer_groups = self._owners()
        rng = np.random.default_rng(0)
        drawn = np.vstack([codes.random(SAMPLE // 2, rng), codes.random(SAMPLE // 2, rng, alike=True)])
        whole, layer = self._raw(drawn)
        self._whole_mean, self._layer_mean = whole.mean(0), layer.mean(0)
        self._whole_scale = _scales(whole, self.whole_groups, self.groups)
        self._layer_scale = _scales(layer, self.layer_groups, self.groups)

    def __call__(self, rows: np.ndarray, fidelity: np.ndarray | float = 1.0, costs: np.ndarray | None = None) -> Rows:
        """rows: [N, D]. fidelity: [N], how long each was trained, from 0 to 1. costs: [N, C], with a mean squared
        distance of 1.
        """
        whole, layer = self._raw(rows)
        whole = (whole - self._whole_mean) * self._whole_scale
        whole[:, -1] = np.broadcast_to(fidelity, len(rows)) - 1.0
        if costs is not None:
            whole[:, -1 - self.costs : -1] = costs
        return Rows(whole, (layer - self._layer_mean) * self._layer_scale)

    def _columns(self, columns: np.ndarray) -> list[np.ndarray]:
        """By option or number: what a value of each copy contributes, as a table over its values; [values]."""
        first = columns[0]
        if self.codes.units[first] is None:
            return []
        if self.codes.ordered[first]:
            return [np.asarray(self.codes.units[first])]
        return list(np.eye(self.codes.counts[first]))

    def _owners(self) -> tuple[np.ndarray, np.ndarray]:
        whole: list[int] = []
        layer: list[int] = []
        for group, columns in enumerate(self._members):
            width = max(1, len(self._sized[group]))
            several = len(columns) > 1
            numbers = width + (1 if self._is_number(group) else 0)
            whole += [group] * (numbers * (2 if several else 1))
            layer += [group] * (width * len(columns) if several else 0)
        added = range(len(self._members), self.groups)  # the costs, and the fidelity
        return np.array([*whole, *added]), np.array(layer, dtype=int)

    def _is_number(self, group: int) -> bool:
        return bool(self.codes.ordered[self._members[group][0]])

    def _raw(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        active = self.codes.active(rows)
        whole: list[np.ndarray] = []
        layer: list[np.ndarray] = []
        for group, columns in enumerate(self._members):
            on = active[:, columns].astype(float)  # [N, copies]
            tables = self._sized[group]
            numbers = rows[:, columns]
            each = [on * table[numbers.astype(int)] for table in tables] if tables else [on * numbers]
            counted = [*each, on] if self._is_number(group) else each
            whole += [part.sum(1) / len(columns) for part in counted]
            if len(columns) > 1:
                late = np.linspace(-1, 1, len(columns))
                whole += [(part * late).sum(1) / len(columns) for part in counted]
                layer += [column for part in each for column in part.T]
        whole += [np.ones(len(rows))] * (self.costs + 1)
        return np.array(whole).T, (np.array(layer).T if layer else np.zeros((len(rows), 0)))


def fidelity(steps: np.ndarray, longest: float) -> np.ndarray:
    """How long results were trained, [N]: 1 is the longest, and ten times shorter is 1 less."""
    return 1 + np.log(np.maximum(steps, 1e-9) / longest) / math.log(10)


def _scales(columns: np.ndarray, owners: np.ndarray, groups: int) -> np.ndarray:
    """By column: the factor that gives the columns of a hole a mean squared distance of 1 between random rows."""
    spread = 2 * columns.var(0)
    total = np.bincount(owners, weights=spread, minlength=groups)[owners]
    return 1 / np.sqrt(np.maximum(total, 1e-6))
