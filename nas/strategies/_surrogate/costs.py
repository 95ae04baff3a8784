"""Costs that need no training as features: a model that is as large as another one often does as well.

They are computed for every point of a small space, so each of its rows has them. N rows, D holes, C costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas.strategies._surrogate.codes import UNSET, Codes
from nas.strategies._surrogate.warp import standard


class Costs:
    """The costs of all points of a space. count: how many each point has."""

    def __init__(self, codes: Codes, rows: np.ndarray, costs: Sequence[Sequence[float | None]]) -> None:
        """rows: [N, D]. costs: those of each row; an objective that is None for one of them is no cost."""
        self._codes = codes
        columns = [_scaled(np.array(column, float)) for column in zip(*costs, strict=True) if None not in column]
        self.count = len(columns)
        self._known = dict(zip(self._keys(rows), np.array(columns).T, strict=True)) if columns else {}

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """The costs of `rows` [N, D] as features: [N, C]. A row that is no point of the space has mean costs."""
        mean = np.zeros(self.count)
        return np.array([self._known.get(key, mean) for key in self._keys(rows)]).reshape(-1, self.count)

    def _keys(self, rows: np.ndarray) -> list[bytes]:
        plain = np.where(self._codes.active(rows), rows, UNSET).astype(np.float32)
        return [row.tobytes() for row in plain]


def _scaled(column: np.ndarray) -> np.ndarray:
    """Logarithms of positive costs, with a mean of 0 and a mean squared distance of 1."""
    return standard(np.log(column) if (column > 0).all() else column) / np.sqrt(2.0)
