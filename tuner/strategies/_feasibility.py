"""The chance that a configuration runs, learned from those that ran and those that failed.

A configuration fails mostly because it lacks registers or shared memory, and their use grows with sizes and products of
sizes. So failures lie together in the space. A Gaussian process with one long length scale predicts a label, 1 for a
configuration that runs and -1 for one that fails. Gelbart, Snoek & Adams 2014, "Bayesian Optimization with Unknown
Constraints", https://arxiv.org/abs/1403.5607, multiply the expected improvement by such a chance.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from tuner.strategies._gaussian_process import GaussianProcess

LENGTH = 2.0  # of every feature
NOISE = 0.05  # variance of a label that the features do not explain
PRIOR, WEIGHT = 0.5, 4.0  # the mean label before any measurement, and how many measurements it is worth
SLACK = 0.1  # added to the variance of a prediction


class Feasibility:
    """features: [N, F] of all candidates."""

    def __init__(self, features: np.ndarray) -> None:
        self.process = GaussianProcess(features, LENGTH)
        self.process.noise = NOISE

    def chances(self, rows: list[int], failed: np.ndarray) -> np.ndarray:
        """[N], from 0 to 1: how likely each candidate is to run. rows: the known candidates, those of the last call
        first. failed: [n] of bool, which of them failed."""
        labels = np.where(failed, -1.0, 1.0)
        mean = (labels.sum() + WEIGHT * PRIOR) / (len(labels) + WEIGHT)
        self.process.see(rows)
        found = mean + self.process.spread(self.process.whiten(labels - mean))
        return ndtr(found / np.sqrt(self.process.left() + SLACK))
