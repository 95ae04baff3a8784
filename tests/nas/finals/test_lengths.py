"""Does a lead last: the words for several lengths, and the change from the shortest to the longest."""

from dataclasses import replace

import numpy as np
import pytest

from nas.documents import Documents
from nas.finals.interval import Runs
from nas.finals.lengths import across_lengths

NOISE = (-0.004, 0.001, 0.003)


def pair(difference: float, failed: int = 0) -> tuple[Runs, Runs]:
    """A candidate and a baseline with a little noise and this mean difference."""
    ours = tuple(2 + difference + noise for noise in NOISE)
    return Runs((1, 2, 3), ours, None, failed), Runs((1, 2, 3), (2.0, 2.0, 2.0))


@pytest.mark.parametrize(
    ("differences", "word", "trend"),
    [
        ((-0.10, -0.10), "is better", "holds"),
        ((-0.10, -0.15), "is better", "grows"),
        ((0.10, -0.10), "is better", "grows"),
        ((-0.16, -0.06), "learns faster", "shrinks"),
        ((-0.10, 0.00), "learns faster", "shrinks"),
        ((0.00, 0.00), "no difference shown", "no change shown"),
        ((-0.10, 0.10), "worse", "shrinks"),
        ((0.10, 0.10), "worse", "holds"),
    ],
)
def test_the_word_follows_the_longest_length_and_the_change(differences, word, trend):
    found = across_lengths({360: pair(differences[0]), 1080: pair(differences[1])})

    assert (found.word, found.trend.word) == (word, trend)
    assert found.trend.change == pytest.approx(differences[1] - differences[0])
    assert found.trend.low <= found.trend.change <= found.trend.high
    assert found.longest is found.lengths[1080]


def test_a_lead_that_falls_below_half_is_not_called_better():
    """The noise hides that it shrinks, so the interval of the change includes zero."""
    seeds = (1, 2, 3)
    noisy = Runs(seeds, tuple(1.9 + 12 * noise for noise in NOISE)), Runs(seeds, (2.0, 2.0, 2.0))
    found = across_lengths({360: pair(-0.16), 720: noisy, 1080: pair(-0.06)})

    assert across_lengths({720: noisy, 1080: pair(-0.06)}).word == "is better"  # no lead is shown at 720
    assert found.lengths[1080].word == "better" and found.word == "learns faster"


def test_one_length_has_no_trend():
    found = across_lengths({300: pair(-0.1)})

    assert found.word == "is better" and found.trend is None


def test_a_failed_run_at_any_length_rules_out_a_win():
    found = across_lengths({360: pair(-0.1, failed=1), 1080: pair(-0.1)})

    assert found.lengths[1080].word == "better" and found.word == "no difference shown"


def test_shorter_lengths_share_their_chance_of_error():
    found = across_lengths({steps: pair(-0.01) for steps in (100, 200, 400)})

    assert [each.confidence for each in found.lengths.values()] == [0.975, 0.975, 0.95]


def test_a_length_with_one_seed_has_no_trend():
    short = Runs((1,), (1.9,)), Runs((1,), (2.0,))
    found = across_lengths({360: short, 1080: pair(-0.1)})

    assert found.word == "is better" and found.trend is None


def test_documents_are_paired_across_lengths():
    """The difference varies between documents, but by the same amount at both lengths: the change is known well."""
    names = tuple(f"document {number}" for number in range(30))
    weights = np.ones(30)
    random = np.random.default_rng(0)
    by_document = random.normal(0, 0.05, 30)

    def entrant(difference: float, seed: int, spread: np.ndarray) -> Runs:
        noise = np.random.default_rng(seed).normal(0, 0.001, 3)
        rows = [2 + difference + each + spread for each in noise]
        documents = tuple(Documents("bits", names, row, weights) for row in rows)
        return Runs((1, 2, 3), tuple(float(row.mean()) for row in rows), documents)

    runs = {
        steps: (entrant(difference, steps, by_document), entrant(0.0, steps + 1, np.zeros(30)))
        for steps, difference in ((360, -0.1), (1080, -0.08))
    }
    found = across_lengths(runs)
    change = found.trend.high - found.trend.low

    assert found.trend.word == "shrinks" and found.word == "learns faster"
    assert change < 0.3 * (found.longest.high - found.longest.low)


def test_the_choice_among_finalists_makes_growth_harder_to_show():
    runs = {360: pair(-0.1), 1080: pair(-0.125)}
    alone, chosen = across_lengths(runs), across_lengths(runs, chosen_from=3)

    assert chosen.trend.high > alone.trend.high and chosen.trend.low == alone.trend.low


def test_the_same_failure_in_the_baseline_does_not_help():
    ours, theirs = pair(-0.1)
    found = across_lengths({360: (ours, replace(theirs, failed=1)), 1080: (ours, theirs)})

    assert found.word == "is better" and "baseline failed" in found.lengths[360].reason
