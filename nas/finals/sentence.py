"""The result of the finals in plain sentences: who won, by how much at each length, and what this does not show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nas.finals.interval import Verdict
from nas.finals.lengths import Lengths, Trend
from searchspace.wording import plural

APART = 0.1  # a compute ratio is named if it differs from 1 by more than this

HEADS = {
    "is better": "{} is better than {}",
    "learns faster": "{} learns faster than {}, but it is not shown to end better",
    "no difference shown": "no difference shown between {} and {}",
    "worse": "{} is worse than {}",
}


def sentence(
    lengths: Lengths,
    *,
    metric: str,
    candidate: str = "the candidate",
    baseline: str = "the baseline",
    maximised: bool = False,
    compute: float | None = None,
    left_out: Sequence[str] = (),
) -> str:
    """The verdict for people, one to three sentences.

    metric: what the differences are in, such as "bits per byte on test data". maximised: the runs hold the metric with
    its sign turned, so the differences are turned back. compute: training FLOPs of the candidate over those of the
    baseline, named if they differ by more than 10 %. left_out: what the finals did not try, as nouns.
    """
    sign = -1.0 if maximised else 1.0
    steps = sorted(lengths.verdicts)
    shown = [f"{_difference(lengths.verdicts[each], sign)} after {plural(each, 'step')}" for each in steps]
    direction = "higher" if maximised else "lower"
    said = [
        f"{_head(lengths).format(candidate, baseline)}: difference in {metric} ({direction} is better) "
        f"{', '.join(shown)}; {_sample(lengths.longest)}.",
        *_course(lengths, steps, sign),
        *_reasons(lengths, steps),
    ]
    if compute is not None and not 1 - APART <= compute <= 1 + APART:
        said.append(f"{_capital(candidate)} uses {compute:.2g} times the training compute of {baseline}.")
    if left_out:
        said.append(f"Left out: {', '.join(left_out)}.")
    return _capital(" ".join(said))


def _head(lengths: Lengths) -> str:
    if lengths.word == "learns faster" and lengths.longest.word == "better":
        return "{} learns faster than {}, and its lead gets smaller"
    return HEADS[lengths.word]


def _difference(verdict: Verdict, sign: float) -> str:
    """-0.07 (95 % interval -0.1 to -0.04)."""
    if math.isnan(verdict.difference):
        return "unknown"
    ends = sorted((sign * verdict.low + 0.0, sign * verdict.high + 0.0))
    if math.isinf(ends[0]):
        return f"{sign * verdict.difference:+.3g} (no interval)"
    percent = f"{100 * verdict.confidence:.3g} %"
    return f"{sign * verdict.difference + 0.0:+.3g} ({percent} interval {ends[0]:+.3g} to {ends[1]:+.3g})"


def _sample(verdict: Verdict) -> str:
    """What the interval was computed from."""
    if verdict.documents:
        return f"{plural(verdict.seeds, 'seed')}, {plural(verdict.documents, 'held-out document')}"
    return f"{plural(verdict.seeds, 'seed')}, always on the same held-out data"


def _course(lengths: Lengths, steps: Sequence[int], sign: float) -> list[str]:
    """Whether the lead lasts, if there is one."""
    if not any(each.word == "better" for each in lengths.verdicts.values()):
        return []
    if len(steps) == 1:
        return ["One length was trained, so whether the lead lasts is not known."]
    if lengths.trend is None:
        return ["Whether the lead lasts is not known."]
    change = _change(lengths.trend, sign)
    between = f"from {steps[0]:,} to {plural(steps[-1], 'step')}"
    words = {"shrinks": "The lead shrinks", "grows": "The lead grows", "holds": "The lead holds"}
    return [f"{words.get(lengths.trend.word, 'It is not shown that the lead changes')} {between} ({change})."]


def _change(trend: Trend, sign: float) -> str:
    ends = sorted((sign * trend.low + 0.0, sign * trend.high + 0.0))
    return f"change of the difference {sign * trend.change + 0.0:+.3g}, {ends[0]:+.3g} to {ends[1]:+.3g}"


def _reasons(lengths: Lengths, steps: Sequence[int]) -> list[str]:
    """The reasons of the verdicts, each once, with the length if it does not hold for all lengths."""
    reasons = [lengths.verdicts[each].reason for each in steps]
    if len(set(reasons)) == 1:
        return [f"{_capital(reasons[0])}."] if reasons[0] else []
    return [f"After {plural(each, 'step')}: {reason}." for each, reason in zip(steps, reasons, strict=True) if reason]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
