"""The order by crowding distance, against the definition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nas.schedulers.distances import COPY, Distances


@given(st.integers(0, 2**32))
def test_gaps_and_spans_change_the_order(seed):
    generator = np.random.default_rng(seed)
    gaps = {number: [float(generator.integers(4)), float(generator.integers(4))] for number in range(0, 20, 2)}
    least, open = dict.fromkeys(gaps, 0.0), set(gaps)
    made, spans = Distances(np.array([*gaps]), np.array([*gaps.values()]).T, open), [5.0, 0.0]
    for fresh in generator.permutation(range(1, 41, 2)).tolist():
        gaps[fresh], least[fresh] = [0.0, 0.0], float(generator.choice([0.0, COPY]))
        open.add(fresh)
        made.add(fresh, least[fresh])
        for number in generator.choice([*gaps], 2).tolist():
            objective, gaps[number][objective] = 1, float(generator.integers(4))
            made.change(objective, [(number, gaps[number][objective])])
        if generator.random() < 0.3:
            gone = int(generator.choice([*gaps]))
            made.remove(gone)
            gaps.pop(gone)
            open.discard(gone)
        if generator.random() < 0.3:
            spans = [float(generator.integers(1, 9)), float(generator.integers(9))]
        made.measure(spans)
        distances = {number: least[number] + x / spans[0] + y / (spans[1] or 1) for number, (x, y) in gaps.items()}
        best = sorted(gaps, key=lambda number: (-distances[number], number))
        found = next((number, place) for place, number in enumerate(best) if number in open)
        assert made.first() == found
        if len(open) > 1:
            open.remove(found[0])
