"""Runs a strategy on a recorded space exactly as in a live session, without a device.

An invalid configuration costs one evaluation and its compile time and gives no value. A number outside of the space is
an error. With `noisy` a measurement is one of the recorded samples, drawn at random in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, isclose

import numpy as np

from kernels.dispatch.registry import Choice, Problem
from tuner import strategies
from tuner.measure.measure import timing
from tuner.outcome import Kind, Outcome
from tuner.replay.recorded import Recorded
from tuner.search.cache import Known
from tuner.search.decision import decide
from tuner.search.effort import effort as effort_called
from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy

Make = Callable[[TuningSpace, int, tuple[int, ...], Hints | None], Strategy]
REPLAYED = Problem("replayed", "cpu", "float32", ())  # in place of the recorded problem


@dataclass(frozen=True)
class Run:
    """order: the configurations in the order of their measurement. times: their recorded means, NaN if invalid. seen:
    the values reported to the strategy. chosen: the fastest at the end. seconds: of the strategy's own time per
    proposal, on average. compiling: milliseconds of all compilations. longest: seconds of the slowest proposal."""

    order: tuple[int, ...]
    times: np.ndarray
    seen: np.ndarray
    chosen: int | None
    seconds: float
    compiling: float
    longest: float = 0.0

    def best(self) -> np.ndarray:
        """The fastest recorded mean after each evaluation; infinite before the first valid one."""
        return np.fmin.accumulate(np.where(np.isnan(self.times), np.inf, self.times))


def replay(
    recorded: Recorded,
    strategy: str | Make,
    evaluations: int,
    seed: int = 0,
    *,
    noisy: bool = False,
    first: tuple[int, ...] = (),
    hints: Hints | None = None,
) -> Run:
    """Run a strategy, given by its name or a factory, for `evaluations`, or until all configurations are known.

    Raises ValueError for a proposal outside of the space.
    """
    if isinstance(strategy, str):
        asked = strategies.make(strategy, recorded.space, seed, first, hints)
    else:
        asked = strategy(recorded.space, seed, first, hints)
    rng = np.random.default_rng([seed, 1])
    order: list[int] = []
    seen: list[float] = []
    own = longest = 0.0
    while len(order) < evaluations:
        start = time.perf_counter()
        number = asked.ask()
        longest = max(longest, time.perf_counter() - start)
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
    seconds = own / max(1, len(order))
    return Run(tuple(order), recorded.times[order], np.array(seen), asked.best, seconds, compiling, longest)


def settle(recorded: Recorded, run: Run, seed: int = 0, effort: str = "full") -> int | None:
    """The configuration that a live session would serve after `run`; None if no configuration is valid.

    Its fastest few and the first one, as the default, are timed in turns with recorded samples drawn at random, and
    `tuner.search.decision` decides.
    """
    how, rng = effort_called(effort), np.random.default_rng([seed, 2])
    valid = [number for number, value in zip(run.order, run.seen, strict=True) if not np.isnan(value)]
    if not valid:
        return None
    seen = dict(zip(run.order, run.seen, strict=True))
    some = dict.fromkeys([*sorted(valid, key=lambda number: seen[number])[: how.finalists], valid[0]])
    finals = {}
    for number in some:
        samples = tuple(float(x) for x in rng.choice(recorded.samples[number], how.rounds))
        finals[_choice(number)] = Known(Outcome(Kind.TIMED, samples), timing(samples).median)
    decision = decide(REPLAYED, _choice(valid[0]), finals, finals, seed)
    assert decision.choice is not None
    return int(dict(decision.choice.configuration)["number"])


def _choice(number: int) -> Choice:
    return Choice.of("replayed", {"number": number})


def fraction_of_optimum(recorded: Recorded, run: Run, evaluations: int) -> float:
    """The fastest time of the space relative to the fastest found: 1 at the optimum, 0 if nothing valid was found."""
    best = run.best()
    return recorded.best / float(best[min(evaluations, len(best)) - 1])


def expected_random(recorded: Recorded, evaluations: int) -> float:
    """The exact mean of the fastest of `evaluations` configurations drawn without replacement, if one is valid.

    For sorted times a_k and M draws of N it is the sum over k of a_k C(N - k, M - 1) / C(N, M), k from 1. Failed
    configurations count as slower than all others.
    """
    times = np.sort(recorded.times[~np.isnan(recorded.times)])
    n, m = len(recorded.space), min(evaluations, len(recorded.space))
    whole = comb(n, m)
    chances = np.array([comb(n - k, m - 1) / whole for k in range(1, len(times) + 1)])
    return float((times * chances).sum() / chances.sum())


def score(recorded: Recorded, runs: list[Run], evaluations: int) -> tuple[float, float]:
    """(improvement over random search, its standard error): 0 is random search, 1 is the optimum."""
    found = np.array([run.best()[min(evaluations, len(run.order)) - 1] for run in runs])
    improvement = improvements(recorded, found[np.isfinite(found)], evaluations)
    return float(improvement.mean()), float(improvement.std(ddof=1) / np.sqrt(len(improvement)))


def improvements(recorded: Recorded, found: np.ndarray, evaluations: int) -> np.ndarray:
    """For times `found` after `evaluations`: the position between random search (0) and the optimum (1).

    If random search is sure to find the optimum, because it tries the whole space, a time at the optimum counts as 1.
    """
    baseline = expected_random(recorded, evaluations)
    if isclose(baseline, recorded.best):
        return np.where(found <= recorded.best, 1.0, -np.inf)
    return (baseline - found) / (baseline - recorded.best)
