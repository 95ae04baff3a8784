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


def order(crowd, open):
    """The places of all open trials, by taking the first one away again and again."""
    found = []
    while open:
        number, place = crowd.first()
        found.append((place, number))
        open.remove(number)
    return found


@given(st.integers(2, 4), st.sampled_from([3, 1000]), st.integers(0, 2**32), st.integers(1, 12), st.booleans())
def test_after_each_change_the_order_is_that_of_the_definition(objectives, ties, seed, changes, copies_last):
    generator = np.random.default_rng(seed)

    def some(numbers):  # of few values, so that spans are often 0, or of wider and narrower fronts
        width = generator.choice([1, ties, 3 * ties])
        return {number: tuple(map(float, generator.integers(0, width, objectives))) for number in numbers}

    values = some(range(0, 40, 2))
    open, fresh = set(values), 100
    crowd = Crowd(values, open, copies_last=copies_last)
    for _ in range(changes):
        left = [number for number in values if generator.random() < 0.1]
        joined = some([*range(fresh, fresh + int(generator.integers(3))), *([fresh // 2 + 1] if fresh < 130 else [])])
        fresh += 3
        values = {number: row for number, row in values.items() if number not in left} | joined
        open.difference_update(left)
        open.update(joined)
        crowd.update(joined, left)
        assert len(crowd) == len(values)
        trials = expected(values, copies_last) if values else []
        while open:
            found = next((number, place) for place, number in enumerate(trials) if number in open)
            assert crowd.first() == found
            if generator.random() < 0.5:
                break
            open.remove(found[0])
        open.difference_update([number for number in sorted(open) if generator.random() < 0.1])
    was_open = set(open)
    places = enumerate(expected(values, copies_last) if values else [])

    assert order(crowd, open) == [(place, number) for place, number in places if number in was_open]
