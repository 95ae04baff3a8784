"""Times are divided by a fixed computation next to them, and those of quiet moments count."""

from contextlib import nullcontext

import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from nas.latency import gauge as gauges
from nas.latency.gauge import BACKWARD, Gauge, _backward, as_quiet, gauge
from tuner.measure.core import one_core

GAUGE = gauge(torch.device("cpu"))


@given(st.floats(0.01, 1e4), st.lists(st.floats(0.5, 10.0), min_size=1))
def test_a_sample_that_slows_down_with_the_gauge_is_as_on_the_quiet_machine(time, loads):
    assert as_quiet([time * each for each in loads], [0.5 * each for each in loads], 0.5) == approx([time] * len(loads))


def test_nothing_changes_while_the_quiet_machine_is_unknown():
    assert as_quiet([1.0, 2.0], [5.0, 7.0], None) == [1.0, 2.0]


def test_the_gauge_does_the_same_work_every_time(monkeypatch):
    for name in ("LAUNCHES", "ROWWISE", "PRODUCTS"):  # tests/conftest.py leaves out a part of it
        monkeypatch.setattr(gauges, name, 2)
    assert GAUGE.call() == GAUGE.call() and GAUGE.call().isfinite()


@given(st.lists(st.floats(0.1, 10.0), min_size=1))
def test_a_third_of_the_times_counts_and_no_other_is_shorter(times):
    places = GAUGE.quietest(times)
    others = [each for place, each in enumerate(times) if place not in places]
    assert places == sorted(set(places)) and len(places) == -(-len(times) // 3)
    assert max(times[each] for each in places) <= min(others, default=10.0)


def test_busy_moments_do_not_change_what_counts():
    assert GAUGE.in_quiet([2.0, 9.0, 1.9, 5.0, 2.1, 7.0, 8.0, 6.0, 5.0]) == 2.0


def test_all_times_may_count():
    all_of_them = Gauge(lambda: None, share=1.0)
    assert all_of_them.quietest([3.0, 1.0, 2.0]) == [0, 1, 2] and all_of_them.in_quiet([3.0, 1.0, 9.0]) == 3.0


def test_on_a_gpu_all_times_count_and_the_threads_stay_on_one_core():
    found = gauge(torch.device("meta"))  # any device but the CPU
    assert (found.share, found.quiet, found.still) == (1.0, 0.5, one_core)
    assert (GAUGE.quiet, GAUGE.still) == (0.1, nullcontext)


def test_of_two_times_the_shorter_one_counts_because_the_process_may_have_stood_still():
    assert Gauge(lambda: None, share=1.0).in_quiet([20000.0, 3.0]) == 3.0


@torch.no_grad()
def test_the_backward_pass_of_a_gpu_is_timed_also_where_models_need_no_gradients():
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, call, types, args=(), kwargs=None):
            Counting.calls += 1
            return call(*args, **(kwargs or {}))

    backward = _backward(torch.device("cpu"))
    with Counting():
        backward()
    assert Counting.calls > 4 * BACKWARD
