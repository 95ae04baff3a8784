"""Does the lead of a candidate last when both are trained longer? "Is better" and "learns faster" are told apart.

The runs of each length are compared on their own (`nas.finals.interval`), and so is the change from the shortest length
to the longest. Each length has runs of its own, so the seeds of two lengths are independent. The documents are the
same, so they are paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from nas.finals.interval import Runs, compare, paired
from nas.finals.spread import spread
from nas.finals.verdict import Comparison, Comparisons, Course, OverallWord, Trend

SHARE = 0.5  # of its size at a shorter length: a smaller lead at the longest length is a sign that it vanishes


def across_lengths(
    runs: Mapping[int, tuple[Runs, Runs]], *, chosen_from: int = 1, confidence: float = 0.95
) -> Comparisons:
    """Compare candidate and baseline at every length. runs: number of training steps -> (candidate, baseline).

    The word is
    - "is better" if the candidate is better at the longest length, the lead does not shrink (see `Trend`), and it is at
      least half of the largest lead at a length where the candidate is better;
    - "learns faster" if it is better at some length, and not as above: the lead shrinks, or it is not shown at the end;
    - "worse" if it is worse at the longest length;
    - else "no difference shown". A candidate with a failed run at any length gets neither of the first two.
    With L lengths, a shorter length counts as better at the level (1 - confidence) / (L - 1), because each of them is
    another chance to be called better. With one length "is better" means: at this length.

    Raises what `nas.finals.interval.compare` raises.
    """
    steps = sorted(runs)
    strict = 1 - (1 - confidence) / max(1, len(steps) - 1)
    found = {
        each: compare(*runs[each], chosen_from=chosen_from, confidence=confidence if each == steps[-1] else strict)
        for each in steps
    }
    trend = _trend(runs[steps[0]], runs[steps[-1]], chosen_from, confidence) if len(steps) > 1 else None
    return Comparisons(word=_word(list(found.values()), trend), lengths=found, trend=trend)


def _word(comparisons: list[Comparison], trend: Trend | None) -> OverallWord:
    """The word for all lengths. comparisons: shortest length first."""
    longest = comparisons[-1]
    if longest.word == "worse":
        return "worse"
    leads = [-each.difference for each in comparisons if each.word == "better" and each.difference is not None]
    if not leads or any(each.failed[0] for each in comparisons):
        return "no difference shown"
    lasting = longest.word == "better" and leads[-1] >= SHARE * max(leads)
    return "is better" if lasting and not (trend and trend.word == "shrinks") else "learns faster"


def _trend(
    shortest: tuple[Runs, Runs], longest: tuple[Runs, Runs], chosen_from: int, confidence: float
) -> Trend | None:
    """The change of the difference; None if a length has too few seeds.

    The candidate was chosen by its runs of the longest length. Their luck makes the lead seem to grow, so `chosen_from`
    moves the upper end of the change.
    """
    short, long = paired(*shortest), paired(*longest)
    if min(len(short.seeds), len(long.seeds)) < 2:
        return None
    first, change = fmean(short.means), fmean(long.means) - fmean(short.means)
    if short.by_document is not None and long.by_document is not None and short.names == long.names:
        spreads = spread([long.by_document, -short.by_document], short.weights)
    else:
        spreads = spread([long.plain, -short.plain], None)
    low, high = (change + end for end in spreads.interval(confidence, chosen_from))
    word: Course = "holds" if max(-low, high) <= SHARE * abs(first) else "no change shown"
    if low > 0 or high < 0:
        word = "shrinks" if low > 0 else "grows"
    return Trend(word=word, change=change, low=low, high=high)
