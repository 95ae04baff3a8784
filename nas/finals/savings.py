"""How much less training the winner needs to reach what the best baseline reaches at the longest length.

The winner is compared at each of its lengths with the baseline at the longest one. Between lengths the difference is
interpolated over the logarithm of the steps. Where it is zero, both are equal. The ends of the intervals of the
differences give the interval of the steps: the true number of steps is outside only if a difference is outside of its
interval at that length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nas.finals.verdict import Comparison, Savings


@dataclass(frozen=True)
class Reach:
    """The training steps at which the winner equals the baseline's longest run, between `low` and `high`.

    None: not reached within the lengths that were trained, for `low` not needed even at the shortest.
    """

    steps: float | None
    low: float | None
    high: float | None


def reach(comparisons: Mapping[int, Comparison]) -> Reach:
    """comparisons: of the winner at each length with the baseline at its longest one, of values to be minimised."""
    lengths = sorted(comparisons)

    def crossed(name: str, unknown: float) -> float | None:
        values = [getattr(comparisons[each], name) for each in lengths]
        return crossing(lengths, [unknown if value is None else value for value in values])

    return Reach(crossed("difference", math.nan), crossed("low", -math.inf), crossed("high", math.inf))


def crossing(steps: Sequence[int], differences: Sequence[float]) -> float | None:
    """The first number of steps at which the difference is zero or less, interpolated; None if it stays above.

    Already below at the shortest length, that length is the answer: fewer steps were not trained.
    """
    before: tuple[int, float] | None = None
    for each, difference in zip(steps, differences, strict=True):
        if difference <= 0:
            return float(each) if before is None else _between(*before, each, difference)
        before = each, difference
    return None


def _between(one: int, above: float, other: int, below: float) -> float:
    """Where a line over the logarithm of the steps meets zero."""
    if not math.isfinite(above) or not math.isfinite(below):
        return float(other)
    share = above / (above - below)
    return one * (other / one) ** share


def savings(
    found: Reach,
    *,
    shortest: int,
    longest: int,
    flops: tuple[float, float],
    speeds: tuple[float | None, float | None],
    parameters: tuple[int, int],
) -> Savings:
    """flops, speeds, parameters: of the winner and of the baseline; the FLOPs are those of one training step."""
    compute = flops[0] / flops[1]

    def saved(steps: float | None) -> float | None:
        return None if steps is None else 1 - compute * steps / longest

    mine, theirs = speeds
    seconds = None
    if found.steps is not None and mine and theirs:
        seconds = 1 - theirs / mine * found.steps / longest
    return Savings(
        flops=saved(found.steps),
        low=saved(found.high),
        high=saved(found.low),
        seconds=seconds,
        parameters=1 - parameters[0] / parameters[1],
        at_shortest=found.steps == shortest,
        open_above=found.low == shortest,
    )


def sentence(found: Savings, candidate: str, baseline: str, longest: int) -> str:
    """What the winner saves, for people."""
    if found.flops is None:
        return f"{candidate} does not reach what {baseline} reaches after {longest:,} steps."
    also = [] if found.seconds is None else [_amount(found.seconds, "less", open_above=found.at_shortest) + " time"]
    also.append(f"{_amount(found.parameters, 'fewer')} parameters")
    return (
        f"{candidate} reaches what {baseline} reaches after {longest:,} steps with "
        f"{_amount(found.flops, 'fewer', open_above=found.at_shortest)} training FLOPs "
        f"({_interval(found)}; {', '.join(also)})."
    )


def _interval(found: Savings) -> str:
    """The interval of the saved FLOPs. An end that no trained length gives is not made up."""
    if found.high is None or (found.low is None and found.open_above):
        return "no interval: it does not follow from these lengths and seeds"
    high = _amount(found.high, "fewer", open_above=found.open_above)
    if found.low is None:
        return f"95 % interval: no lower end, because it may need more than the longest run, to {high}"
    if found.at_shortest and found.low == found.high:
        return f"95 % interval: {high}"
    return f"95 % interval {_amount(found.low, 'fewer')} to {high}"


def _amount(share: float, less: str, *, open_above: bool = False) -> str:
    """30 % fewer, 20 % more. open_above: it may be less still, so at least 30 % fewer, at most 20 % more."""
    percent = f"{100 * abs(share):.0f} % {less if share >= 0 else 'more'}"
    return percent if not open_above else f"at {'least' if share >= 0 else 'most'} {percent}"
