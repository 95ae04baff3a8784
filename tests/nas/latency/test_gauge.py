"""Times are divided by a fixed computation next to them, so that a busy machine does not change them."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from nas.latency.gauge import as_quiet, gauge


@given(st.floats(0.01, 1e4), st.lists(st.floats(0.5, 10.0), min_size=1))
def test_a_sample_that_slows_down_with_the_gauge_is_as_on_the_quiet_machine(time, loads):
    assert as_quiet([time * each for each in loads], [0.5 * each for each in loads], 0.5) == approx([time] * len(loads))


def test_nothing_changes_while_the_quiet_machine_is_unknown():
    assert as_quiet([1.0, 2.0], [5.0, 7.0], None) == [1.0, 2.0]


def test_the_gauge_does_the_same_work_every_time():
    same = gauge(torch.device("cpu"))
    assert same() == same() and same().isfinite()
