"""What an earlier study teaches: a process fitted to its results predicts each shared objective of a new point.

The predictions are features of the new study's own process (`nas.strategies._surrogate.process`), which learns from its
own results how much each of them is worth. So only the order and the shape of the earlier values count, not their unit.
An objective that the earlier study cannot predict from its own results, left out one at a time, is not used.
N rows, D holes, M objectives of the new search.
"""

from __future__ import annotations

import numpy as np

from nas import pareto
from nas.strategies._surrogate.codes import UNSET, Codes
from nas.strategies._surrogate.features import Features, Rows, fidelity
from nas.strategies._surrogate.process import Kernel, Posterior, fitted
from nas.strategies._surrogate.warp import bounded, subset, warp_of
from nas.strategies.earlier import Earlier

FITTED = 128  # results to which the parameters are fitted
FEWEST = 4  # results that a process is fitted to
LEAST = 0.1  # share of the variance of its own results that a study has to predict


class Lesson:
    """best: rows of the best results that were trained longest, the best first, [K, D]."""

    def __init__(self, codes: Codes, features: Features, objectives: int, study: Earlier) -> None:
        self.codes, self.features, self.objectives = codes, features, objectives
        rows, places = readable(codes, study)
        self._absent = codes.deepest()
        self._shared = (rows != UNSET).any(0) if len(rows) else np.zeros(len(codes.paths), dtype=bool)
        filled = [codes.filled(row, np.random.default_rng(place)) for place, row in enumerate(rows)]
        told = [[bounded(value) for value in study.values[place]] for place in places]
        values = np.array(told).reshape(len(places), -1)
        steps = np.array([study.steps[place] for place in places], dtype=float)
        self._models: dict[int, Posterior] = {}
        self.best = np.zeros((0, len(codes.paths)))
        if len(rows) >= FEWEST:
            made = np.array(filled)
            known = self._features(made, fidelity(steps, steps.max()))
            for column, objective in enumerate(study.objectives):
                model = self._fitted(known, values, column)
                if model.explained() >= LEAST:
                    self._models[objective] = model
        if self._models:
            longest = np.flatnonzero(steps == steps.max())
            self.best = made[longest[pareto.order(values[longest])]]

    def predicted(self, rows: np.ndarray) -> np.ndarray:
        """Each objective of `rows` [N, D] in standard deviations from the mean of the study; 0 if it has no such."""
        found = np.zeros((len(rows), self.objectives))
        if self._models:
            known = self._features(rows, 1.0)
            for objective, model in self._models.items():
                found[:, objective] = model.expected(known)
        return found

    def agreement(self, rows: np.ndarray, values: np.ndarray) -> float:
        """The mean over the objectives of the correlation of `values` [N, M] with the predictions, without its sign."""
        found = [0.0]
        predicted = self.predicted(rows)
        if self._models and (predicted.std(0) > 0)[list(self._models)].all():
            found = []
            for objective in self._models:
                known = values[:, objective]
                found.append(abs(np.corrcoef(predicted[:, objective], known)[0, 1]) if known.std() > 0 else 0.0)
        return float(np.mean(found))

    def _features(self, rows: np.ndarray, lengths: np.ndarray | float) -> Rows:
        """Features of the holes that both studies have: the other holes count as if all points had the same value."""
        return self.features(np.where(self._shared, rows, self._absent), lengths)

    def _fitted(self, rows: Rows, values: np.ndarray, column: int) -> Posterior:
        warped = warp_of(values[:, column]).forward(values[:, column])
        standard = (warped - warped.mean()) / (warped.std() or 1.0)
        chosen = subset(pareto.order(values), FITTED)
        parameters = fitted(self.features, rows.take(chosen), standard[chosen], None)
        return Posterior(Kernel(self.features, parameters), rows, standard)


def readable(codes: Codes, study: Earlier) -> tuple[np.ndarray, list[int]]:
    """(rows [N, D], places): the results whose holes have values that the new space has too.

    A hole that the new space does not have is left out. A result without any hole in common is no row.
    """
    rows, places = [], []
    for place, choices in enumerate(study.choices):
        row = codes.row(choices)
        known = [codes.place[path] for path in choices if path in codes.place]
        if known and not (row[known] == UNSET).any():
            rows.append(row)
            places.append(place)
    return np.array(rows).reshape(-1, len(codes.paths)), places
