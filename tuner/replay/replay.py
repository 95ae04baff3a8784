"""A strategy run on a recorded space exactly as it would be live, with no device.

An invalid configuration costs an evaluation and its compile time and gives no value; a configuration that is proposed
again is free, because its result is known; one that the space does not hold is an error. With `noisy` a measurement is
one of the samples that were recorded, drawn anew for every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

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
REPLAYED = Problem("replayed", "cpu", "float32", ())  # stands for the recorded problem in a decision


@dataclass(frozen=True)
class Run:
    """order: the configurations as they were measured. times: their recorded means, NaN where invalid; `seen`: what the
    strategy was told. chosen: the one it ends with. seconds: a proposal, the strategy's own; longest: the slowest one.
    compiling: milliseconds of all compilations."""

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
    """Run a strategy, by its name or what makes it, for so many evaluations, or until all is known."""
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
    """What a live session would serve after `run`: its fastest few and the first one, which stands for the default, are
    timed again in turns, by recorded samples drawn anew, and `tuner.search.decision` decides. None where nothing was
    valid."""
    how, rng = effort_called(effort), np.random.default_rng([seed, 2])
    valid = [number for number, value in zip(run.order, run.seen, strict=True) if not np.isnan(value)]
    if not valid:
        return None
    told = dict(zip(run.order, run.seen, strict=True))
    some = dict.fromkeys([*sorted(valid, key=lambda number: told[number])[: how.finalists], valid[0]])
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
    found = np.array([run.best()[min(evaluations, len(run.order)) - 1] for run in runs])
    improvement = improvements(recorded, found[np.isfinite(found)], evaluations)
    return float(improvement.mean()), float(improvement.std(ddof=1) / np.sqrt(len(improvement)))


def improvements(recorded: Recorded, found: np.ndarray, evaluations: int) -> np.ndarray:
    """Of times that were `found` in so many evaluations: by how much of the way from random search to the optimum."""
    baseline = expected_random(recorded, evaluations)
    return (baseline - found) / (baseline - recorded.best)
