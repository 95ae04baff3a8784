"""Decides which finalist serves a problem: the default, unless another is faster by more than the noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.dispatch.registry import Choice, Problem
from tuner.measure.interval import Interval
from tuner.measure.measure import Timing, compare, timing
from tuner.outcome import TEMPORARY
from tuner.search.cache import Known

DRAWS = 200  # of the bootstrap
COVERAGE = 0.9  # of the interval of a gain, at least: five rounds


@dataclass(frozen=True)
class Decision:
    """choice: serves the problem; None if no candidate is correct. gain: the default's time relative to the choice's,
    with its interval; None if the choice is the default. regret: the expected time of the choice relative to the best
    finalist's. risk: the same at worst, the upper end of an interval. why: in words. failures: how many candidates
    failed, by kind."""

    problem: Problem
    choice: Choice | None
    default: Choice
    milliseconds: float | None
    why: str
    gain: Interval | None = None
    regret: float | None = None
    candidates: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    risk: float = 1.0


def decide(
    problem: Problem, default: Choice, finals: Mapping[Choice, Known], known: Mapping[Choice, Known], seed: int = 0
) -> Decision:
    """finals: the newest comparison in turns. known: all measurements of the problem. A finalist that was found wrong,
    or crashed, after that comparison cannot win."""
    failures: dict[str, int] = {}
    for each in known.values():
        if each.milliseconds is None:
            failures[each.outcome.kind.value] = failures.get(each.outcome.kind.value, 0) + 1
    failed = {each for each in known if known[each].milliseconds is None and known[each].outcome.kind not in TEMPORARY}
    some = {choice: each.outcome.samples for choice, each in finals.items() if choice not in failed}
    timings = {choice: timing(samples) for choice, samples in some.items() if samples}
    counts: dict[str, Any] = {"candidates": len(known), "failures": failures}
    if not timings:
        return Decision(problem, None, default, None, _why_none(known.get(default), failures), **counts)
    fastest = min(timings, key=lambda choice: (timings[choice].median, choice != default, str(choice)))
    if default not in timings:
        reason = known[default].outcome.kind.value if default in known else "not measured"
        chosen, gain, why = fastest, None, f"the default cannot serve: {reason}"
    else:
        gain = compare(timings[default], timings[fastest])
        better = fastest != default and gain.low > 1 and gain.coverage > COVERAGE
        chosen = fastest if better else default
        why = _why(fastest, default, gain, better, len(timings))
        gain = gain if better else None
    return Decision(
        problem,
        chosen,
        default,
        timings[chosen].median,
        why,
        gain,
        expected_regret(timings, chosen, seed),
        risk=max((compare(timings[chosen], timings[each]).high for each in timings if each != chosen), default=1.0),
        **counts,
    )


def _why_none(default: Known | None, failures: Mapping[str, int]) -> str:
    if default is not None and failures and set(failures) <= set(TEMPORARY):
        return f"nothing could be checked: {default.outcome.kind.value}: {default.outcome.message}"
    return "no candidate gives the result of the definition"


def _why(fastest: Choice, default: Choice, gain: Interval, better: bool, compared: int) -> str:
    if compared == 1:
        return "no other choice was compared with the default"
    if fastest == default:
        return f"the default is the fastest of the {compared} that were compared"
    if better:
        return f"faster than the default, {gain.median:.2f} times [{gain.low:.2f}, {gain.high:.2f}]"
    if gain.low > 1:
        return f"{fastest} was faster than the default, but in too few rounds to tell"
    return f"{fastest} is not faster than the default by more than the noise [{gain.low:.2f}, {gain.high:.2f}]"


def expected_regret(timings: Mapping[Choice, Timing], chosen: Choice, seed: int) -> float:
    """The median of the chosen one relative to the lowest median: the mean over bootstrap samples of the rounds.

    The lowest of several noisy medians is biased downwards, so the estimate is biased upwards.
    """
    rounds = min(len(each.samples) for each in timings.values())
    rng = np.random.default_rng(seed)
    drawn = rng.integers(rounds, size=(DRAWS, rounds))
    medians = {choice: np.median(np.array(each.samples)[drawn], axis=1) for choice, each in timings.items()}
    lowest = np.min(list(medians.values()), axis=0)
    return float(np.mean(medians[chosen] / np.maximum(lowest, 1e-12)))
