"""The crowding of a front while trials join and leave, against the crowding computed again."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas import pareto
from nas.schedulers.crowd import Crowd


def expected(values, copies_last):
    numbers = sorted(values)
    oldest = {values[number]: number for number in reversed(numbers)}
    first = [number for number in numbers if not copies_last or oldest[values[number]] == number]
    best = np.argsort(-pareto.crowding([values[number] for number in first]), kind="stable")
    return [first[index] for index in best] + [number for number in numbers if number not in first]


def order(crowd, trials):
    """The whole order, by taking the first trial away again and again."""
    found, left = [], set(trials)
    while left:
        number, place = crowd.first(left)
        found.append((place, number))
        left.remove(number)
    return found


@given(st.integers(2, 4), st.sampled_from([3, 1000]), st.integers(0, 2**32), st.integers(1, 12), st.booleans())
def test_after_each_change_the_order_is_that_of_the_definition(objectives, ties, seed, changes, copies_last):
    generator = np.random.default_rng(seed)

    def some(numbers):
        return {number: tuple(map(float, generator.integers(0, ties, objectives))) for number in numbers}

    values = some(range(0, 40, 2))
    crowd, fresh = Crowd(values, copies_last=copies_last), 100
    for _ in range(changes):
        left = [number for number in values if generator.random() < 0.1]
        joined = some([*range(fresh, fresh + int(generator.integers(3))), *([fresh // 2 + 1] if fresh < 130 else [])])
        fresh += 3
        values = {number: row for number, row in values.items() if number not in left} | joined
        crowd.update(joined, left)
        if values:
            assert crowd.first(values.keys())[0] == expected(values, copies_last)[0]
    assert order(crowd, values) == list(enumerate(expected(values, copies_last))) if values else len(crowd) == 0
