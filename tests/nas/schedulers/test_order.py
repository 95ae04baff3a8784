"""The order that is kept while results arrive, against the computation from all results at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas import pareto
from nas.schedulers.order import Fronts, Line


def expected(results, promoted, count, copies_last=False):
    """The definition: all results sorted by front, crowding and number; copies of a point may come last there."""
    trials = sorted(results)
    rows = np.array([results[number] for number in trials])
    if copies_last and trials:
        oldest = {results[number]: number for number in reversed(trials)}
        first = np.array([oldest[results[number]] == number for number in trials])
        fronts, distance = pareto.ranks(rows), np.full(len(trials), -1.0)
        distance[first] = pareto.crowding(rows[first], fronts[first])
        best = np.lexsort((-distance, fronts))[:count]
    else:
        best = pareto.order(rows)[:count] if trials else []
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
@given(histories(), st.booleans())
def test_each_candidate_is_that_of_all_results_sorted_again(history, copies_last):
    trials, factor, generator = history
    is_line = len(trials[0][1]) == 1
    order = Line(ends_first=not copies_last) if is_line else Fronts(copies_last=copies_last)
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
            assert candidate == expected(results, promoted, count, copies_last)
            if generator.random() < 0.1:
                promote(int(generator.choice(list(results))))
            elif candidate is None:
                break
            elif generator.random() < 0.8:
                promote(candidate)


@pytest.mark.parametrize("few", [0, 10**6])
def test_trials_that_are_added_at_once_have_the_same_order(few, monkeypatch):
    monkeypatch.setattr("nas.schedulers.order.FEW", few)
    values = np.random.default_rng(0).integers(0, 6, 90).astype(float).tolist()
    results, promoted, order = {}, set(), Line(ends_first=True)
    for first in range(0, 90, 30):  # the later ones join those that are sorted
        results |= {number: (values[number],) for number in range(first, first + 30)}
        for number in range(first + 29, first - 1, -1):
            order.add(number, results[number])
        for count in (5, 60):
            while (found := order.candidate(count)) is not None:
                assert found == expected(results, promoted, count)
                order.promote(found)
                promoted.add(found)
            assert expected(results, promoted, count) is None
    assert 60 < len(promoted) < 90


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_many_results_at_once_are_promoted_in_the_order_of_the_definition(objectives):
    generator = np.random.default_rng(objectives)
    results = {number: tuple(row) for number, row in enumerate(generator.random((600, objectives)).tolist())}
    order = Line() if objectives == 1 else Fronts()
    for number, values in results.items():
        order.add(number, values)
    promoted = []
    while (number := order.candidate(200)) is not None:
        promoted.append(number)
        order.promote(number)
    assert promoted == pareto.order(list(results.values()))[:200].tolist()


@pytest.mark.parametrize("objectives", [2, 3])
def test_trials_of_one_front_are_kept_by_crowding(objectives):
    """No trial dominates another, so the crowding distances alone decide, and each result changes some of them."""
    generator = np.random.default_rng(objectives)
    rows = generator.exponential(size=(300, objectives))
    rows /= rows.sum(axis=1, keepdims=True)
    order, results, promoted = Fronts(), {}, set()
    for number, values in enumerate(map(tuple, rows.tolist())):
        order.add(number, values)
        results[number] = values
        candidate = order.candidate(len(results) // 3)
        if number % 20 == 0 or number < 30:
            assert candidate == expected(results, promoted, len(results) // 3)
        if candidate is not None:
            order.promote(candidate)
            promoted.add(candidate)


def test_a_new_best_moves_every_front_back():
    order, results = Fronts(), {}
    for number in range(30):
        results[number] = (float(-number), float(-number))
        order.add(number, results[number])
        assert order.candidate(1) == expected(results, set(), 1) == number


def test_values_whose_differences_are_no_numbers_have_an_order():
    """A span that overflows made every distance NaN, and the search ended with an IndexError."""
    generator = np.random.default_rng(0)
    order, results, promoted = Fronts(), {}, set()
    for number in range(60):
        results[number] = tuple(generator.choice([-1.7e308, -1e308, 0.0, 1e308, 1.7e308], 3).tolist())
        order.add(number, results[number])
        bounded = {each: np.clip(row, -pareto.LARGEST, pareto.LARGEST) for each, row in results.items()}
        candidate = order.candidate(len(results) // 2)
        assert candidate == expected(bounded, promoted, len(results) // 2)
        if candidate is not None:
            order.promote(candidate)
            promoted.add(candidate)


@pytest.mark.parametrize("ties", [1, 2, 5, 90])
def test_of_equal_values_the_older_trial_is_first(ties):
    generator = np.random.default_rng(ties)
    values = generator.integers(0, ties, 90).astype(float).tolist()
    order, told, promoted = Line(), [], []
    for number in generator.permutation(90).tolist():
        order.add(number, (values[number],))
        told.append(number)
        count = len(told) // 3
        best = sorted(told, key=lambda each: (values[each], each))[:count]
        candidate = order.candidate(count)
        assert candidate == next((each for each in best if each not in promoted), None)
        if candidate is not None:
            order.promote(candidate)
            promoted.append(candidate)
    assert len(promoted) >= 30
