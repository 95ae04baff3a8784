"""The order that is kept while results arrive, against the computation from all results at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas import pareto
from nas.schedulers.order import STALE, Fronts, Line


def expected(results, promoted, count):
    """The definition: all results sorted by front, crowding and number; copies of a point come last on their front."""
    trials = sorted(results)
    rows = np.array([results[number] for number in trials])
    oldest = {results[number]: number for number in reversed(trials)}
    first = np.array([oldest[results[number]] == number for number in trials])
    fronts, distance = pareto.ranks(rows), np.full(len(trials), -1.0)
    distance[first] = pareto.crowding(rows[first], fronts[first])
    best = np.lexsort((-distance, fronts))[:count]
    return next((trials[index] for index in best if trials[index] not in promoted), None)


@st.composite
def histories(draw):
    """[(number, values)] of 1 to 4 objectives, with many ties or few, related or not; a factor; a generator."""
    objectives, ties = draw(st.integers(1, 4)), draw(st.sampled_from([2, 5, 40]))
    related = draw(st.booleans())
    numbers = draw(st.permutations(range(draw(st.integers(1, 60)))))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    base = generator.integers(0, ties, (len(numbers), 1)) if related else 0
    values = base + generator.integers(0, 3 if related else ties, (len(numbers), objectives))
    factor = draw(st.sampled_from([1.1, 1.5, 2.0, 3.0, 5.0]))
    return list(zip(numbers, map(tuple, values.astype(float).tolist()))), factor, generator


@settings(max_examples=120)
@given(histories())
def test_each_candidate_is_that_of_all_results_sorted_again(history):
    trials, factor, generator = history
    order = Line() if len(trials[0][1]) == 1 else Fronts()
    results, promoted = {}, set()

    def promote(number):
        order.promote(number)
        promoted.add(number)

    for number, values in trials:
        if generator.random() < 0.03:
            promote(number)  # before its result is known
        order.add(number, values)
        results[number] = values
        while generator.random() < 0.8:
            count = int(len(results) / factor)
            candidate = order.candidate(count)
            assert candidate == expected(results, promoted, count)
            if generator.random() < 0.1:
                promote(int(generator.choice(list(results))))
            elif candidate is None:
                break
            elif generator.random() < 0.8:
                promote(candidate)


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_many_results_are_promoted_in_the_order_of_the_definition(objectives):
    generator = np.random.default_rng(objectives)
    results = {number: tuple(row) for number, row in enumerate(generator.random((600, objectives)).tolist())}
    order = Line() if objectives == 1 else Fronts()
    for number, values in results.items():
        order.add(number, values)
    promoted = []
    while (number := order.candidate(200)) is not None:
        promoted.append(number)
        order.promote(number)
    newest = 600 - (0 if objectives == 1 else 600 // STALE)
    of_all = [pareto.order(list(results.values())[:count]).tolist() for count in range(newest, 601)]
    assert promoted in [order[:200] for order in of_all]


def test_with_many_results_the_newest_hundredth_may_wait_and_what_is_known_follows_from_their_number():
    rows = np.random.default_rng(0).random((700, 3)).tolist()
    asked, silent = Fronts(), Fronts()
    for number, row in enumerate(rows):
        asked.add(number, tuple(row))
        silent.add(number, tuple(row))
        found = asked.candidate(len(rows) // 3)
    assert found == silent.candidate(len(rows) // 3)


def test_values_whose_differences_are_no_numbers_have_an_order():
    generator = np.random.default_rng(0)
    order, results, promoted = Fronts(), {}, set()
    for number in range(60):
        results[number] = tuple(generator.choice([-1.7e308, -1e308, 0.0, 1e308, 1.7e308], 3).tolist())
        order.add(number, results[number])
        candidate = order.candidate(len(results) // 2)
        assert candidate == expected(results, promoted, len(results) // 2)
        if candidate is not None:
            order.promote(candidate)
            promoted.add(candidate)
