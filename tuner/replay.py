"""A strategy run on a recorded space exactly as it would be live, with no device.

An invalid configuration costs an evaluation and its compile time and gives no value; a configuration that is proposed
again is free, because its result is known; one that the space does not hold is an error. With `noisy` a measurement is
one of the samples that were recorded, drawn anew for every run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import comb

import numpy as np

from tuner import strategies
from tuner.recorded import Recorded


@dataclass(frozen=True)
class Run:
    """order: the configurations as they were measured. times: their recorded means, NaN where invalid; `seen`: what the
    strategy was told. chosen: the one it ends with. seconds: a proposal, the strategy's own. compiling: milliseconds of
    all compilations."""

    order: tuple[int, ...]
    times: np.ndarray
    seen: np.ndarray
    chosen: int | None
    seconds: float
    compiling: float

    def best(self) -> np.ndarray:
        """The fastest recorded mean after each evaluation; infinite before the first valid one."""
        return np.fmin.accumulate(np.where(np.isnan(self.times), np.inf, self.times))


def replay(
    recorded: Recorded,
    strategy: str,
    evaluations: int,
    seed: int = 0,
    *,
    noisy: bool = False,
    first: tuple[int, ...] = (),
    hints: np.ndarray | None = None,
) -> Run:
    """Run the strategy called `strategy` for so many evaluations, or until all is known."""
    asked = strategies.make(strategy, recorded.space, seed, first, hints)
    rng = np.random.default_rng([seed, 1])
    order: list[int] = []
    seen: list[float] = []
    own = 0.0
    while len(order) < evaluations:
        start = time.perf_counter()
        number = asked.ask()
        own += time.perf_counter() - start
        if number is None:
            break
        if not 0 <= number < len(recorded.space):
            raise ValueError(f"{strategy} asked for configuration {number}, but there are {len(recorded.space)}.")
        value = recorded.samples[number, rng.integers(recorded.samples.shape[1])] if noisy else recorded.times[number]
        order.append(number)
        seen.append(value)
        start = time.perf_counter()
        asked.tell(number, None if np.isnan(value) else float(value))
        own += time.perf_counter() - start
    compiling = float(recorded.compile[order].sum())
    return Run(tuple(order), recorded.times[order], np.array(seen), asked.best, own / max(1, len(order)), compiling)


def fraction_of_optimum(recorded: Recorded, run: Run, evaluations: int) -> float:
    """The fastest time of the space over the fastest found in so many evaluations: 1 the optimum, 0 nothing valid."""
    best = run.best()
    return recorded.best / float(best[min(evaluations, len(best)) - 1])


def expected_random(recorded: Recorded, evaluations: int) -> float:
    """The exact mean of the fastest of so many configurations drawn without replacement, given that one is valid.

    For sorted times a_k and M draws of N: the sum over k of a_k C(N - k, M - 1) / C(N, M), k from 1; failed ones, which
    are slower than all, fill up the draws.
    """
    times = np.sort(recorded.times[~np.isnan(recorded.times)])
    n, m = len(recorded.space), min(evaluations, len(recorded.space))
    whole = comb(n, m)
    chances = np.array([comb(n - k, m - 1) / whole for k in range(1, len(times) + 1)])
    return float((times * chances).sum() / chances.sum())


def score(recorded: Recorded, runs: list[Run], evaluations: int) -> tuple[float, float]:
    """(improvement over random search, its standard error): 0 is random, 1 the optimum; see `expected_random`."""
    baseline = expected_random(recorded, evaluations)
    found = np.array([run.best()[min(evaluations, len(run.order)) - 1] for run in runs])
    valid = found[np.isfinite(found)]
    improvement = (baseline - valid) / (baseline - recorded.best)
    return float(improvement.mean()), float(improvement.std(ddof=1) / np.sqrt(len(valid)))
