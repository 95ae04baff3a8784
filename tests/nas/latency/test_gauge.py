"""Times are divided by a fixed computation next to them, and those of quiet moments count."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from nas.latency.gauge import as_quiet, gauge, in_quiet, quietest


@given(st.floats(0.01, 1e4), st.lists(st.floats(0.5, 10.0), min_size=1))
def test_a_sample_that_slows_down_with_the_gauge_is_as_on_the_quiet_machine(time, loads):
    assert as_quiet([time * each for each in loads], [0.5 * each for each in loads], 0.5) == approx([time] * len(loads))


def test_nothing_changes_while_the_quiet_machine_is_unknown():
    assert as_quiet([1.0, 2.0], [5.0, 7.0], None) == [1.0, 2.0]


def test_the_gauge_does_the_same_work_every_time():
    same = gauge(torch.device("cpu"))
    assert same() == same() and same().isfinite()


@given(st.lists(st.floats(0.1, 10.0), min_size=1))
def test_a_third_of_the_times_counts_and_no_other_is_shorter(times):
    places = quietest(times)
    others = [each for place, each in enumerate(times) if place not in places]
    assert places == sorted(set(places)) and len(places) == -(-len(times) // 3)
    assert max(times[each] for each in places) <= min(others, default=10.0)


def test_busy_moments_do_not_change_what_counts():
    assert in_quiet([2.0, 9.0, 1.9, 5.0, 2.1, 7.0, 8.0, 6.0, 5.0]) == 2.0
