"""The result of the finals in plain sentences: who won, by how much at each length, and what this does not show."""

from __future__ import annotations

from collections.abc import Sequence

from nas.finals.verdict import Comparison, Comparisons, Trend
from searchspace.wording import plural

APART = 0.1  # a compute ratio is named if it differs from 1 by more than this

HEADS = {
    "is better": "{} is better than {}",
    "learns faster": "{} learns faster than {}, but it is not shown to end better",
    "no difference shown": "no difference shown between {} and {}",
    "worse": "{} is worse than {}",
}


def sentence(
    found: Comparisons,
    *,
    metric: str,
    candidate: str = "the candidate",
    baseline: str = "the baseline",
    maximised: bool = False,
    compute: float | None = None,
) -> str:
    """The verdict for people, one to three sentences.

    metric: what the differences are in, such as "bits per byte on test data". maximised: whether higher is better.
    compute: training FLOPs of the candidate over those of the baseline, named if they differ by more than 10 %.
    """
    steps = sorted(found.lengths)
    shown = [f"{_difference(found.lengths[each])} after {plural(each, 'step')}" for each in steps]
    direction = "higher" if maximised else "lower"
    said = [
        f"{_head(found).format(candidate, baseline)}: difference in {metric} ({direction} is better) "
        f"{', '.join(shown)}; {_sample(found.longest)}.",
        *_course(found, steps),
        *_reasons(found, steps),
    ]
    if compute is not None and not 1 - APART <= compute <= 1 + APART:
        said.append(f"{_capital(candidate)} uses {compute:.2g} times the training compute of {baseline}.")
    return _capital(" ".join(said))


def _head(found: Comparisons) -> str:
    if found.word == "learns faster" and found.longest.word == "better":
        return "{} learns faster than {}, and its lead gets smaller"
    return HEADS[found.word]


def _difference(found: Comparison) -> str:
    """-0.07 (95 % interval -0.1 to -0.04)."""
    if found.difference is None:
        return "unknown"
    if found.low is None or found.high is None:
        return f"{found.difference:+.3g} (no interval)"
    percent = f"{100 * found.confidence:.3g} %"
    return f"{found.difference + 0.0:+.3g} ({percent} interval {found.low + 0.0:+.3g} to {found.high + 0.0:+.3g})"


def _sample(found: Comparison) -> str:
    """What the interval was computed from."""
    if found.documents:
        return f"{plural(found.seeds, 'seed')}, {plural(found.documents, 'held-out document')}"
    return f"{plural(found.seeds, 'seed')}, always on the same held-out data"


def _course(found: Comparisons, steps: Sequence[int]) -> list[str]:
    """Whether the lead lasts, if there is one."""
    if not any(each.word == "better" for each in found.lengths.values()):
        return []
    if len(steps) == 1:
        return ["One length was trained, so whether the lead lasts is not known."]
    if found.trend is None:
        return ["Whether the lead lasts is not known."]
    change = _change(found.trend)
    between = f"from {steps[0]:,} to {plural(steps[-1], 'step')}"
    words = {"shrinks": "The lead shrinks", "grows": "The lead grows", "holds": "The lead holds"}
    return [f"{words.get(found.trend.word, 'It is not shown that the lead changes')} {between} ({change})."]


def _change(trend: Trend) -> str:
    change, low, high = (each + 0.0 for each in (trend.change, trend.low, trend.high))
    return f"change of the difference {change:+.3g}, {low:+.3g} to {high:+.3g}"


def _reasons(found: Comparisons, steps: Sequence[int]) -> list[str]:
    """The reasons of the verdicts, each once, with the length if it does not hold for all lengths."""
    reasons = [found.lengths[each].reason for each in steps]
    if len(set(reasons)) == 1:
        return [f"{_capital(reasons[0])}."] if reasons[0] else []
    return [f"After {plural(each, 'step')}: {reason}." for each, reason in zip(steps, reasons, strict=True) if reason]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
