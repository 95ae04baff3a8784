"""Runs are timed in order next to the gauge, several times built, and those of quiet moments count."""

import itertools
from contextlib import contextmanager, nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from nas.latency import measured, runs, served, timing
from nas.latency.runs import Run, Setting
from nas.latency.timing import BACKWARD, MOST, Gauge, Round, by_key, timed
from tuner.measure.core import one_core

GAUGE = timing.gauge(torch.device("cpu"))
LIKE = {"builds": 1, "most": 1, "rounds": 4}


class Steps:
    """A clock whose calls take the milliseconds that they say, and a record of what ran. Each takes a second."""

    def __init__(self):
        self.ran, self.seconds = [], 0.0

    def now(self):
        return self.seconds

    def time(self, call):
        taken = call()
        self.seconds += 1
        return taken

    def run(self, key, forward, backward=None):
        def does(what, milliseconds):
            return lambda: self.ran.append((what, key)) or milliseconds

        back = None if backward is None else does("back", backward)
        return Run(does("prepare", 0.0), does("call", forward), back)

    def timed(self, *made, gauge=lambda: 0.5, share=1 / 3, **changes):
        return timed(lambda: made, self, Gauge(gauge, share), 0.5, **{**LIKE, **changes})

    def called(self):
        return [key for what, key in self.ran if what == "call"]


def waits(*times):
    """A run whose calls take these milliseconds, again and again."""
    said = itertools.cycle(times)
    return Run(lambda: None, lambda: next(said))


@given(st.floats(0.01, 1e4), st.lists(st.floats(0.5, 10.0), min_size=1))
def test_a_sample_that_slows_down_with_the_gauge_is_as_on_the_quiet_machine(time, loads):
    rounds = [Round((time * load,), 0.5 * load) for load in loads]
    assert [each.as_quiet(0.5)[0] for each in rounds] == approx([time] * len(loads))
    assert [each.as_quiet(None)[0] for each in rounds] == [time * load for load in loads]


@given(st.lists(st.floats(0.1, 10.0), min_size=3))
def test_a_third_of_the_times_counts_and_no_other_is_shorter(times):
    places = GAUGE.quietest(times)
    others = [each for place, each in enumerate(times) if place not in places]
    assert places == sorted(set(places)) and len(places) == -(-len(times) // 3)
    assert max(times[each] for each in places) <= min(others, default=10.0)


def test_which_times_count():
    every = Gauge(lambda: None, share=1.0)
    assert GAUGE.in_quiet([2.0, 9.0, 1.9, 5.0, 2.1, 7.0, 8.0, 6.0, 5.0]) == 2.0
    assert every.quietest([3.0, 1.0, 2.0]) == [0, 1, 2] and every.in_quiet([3.0, 1.0, 9.0]) == 3.0
    assert every.in_quiet([20000.0, 3.0]) == 3.0, "the process may have stood still in one of two"


def test_the_gauge_does_the_same_work_every_time(monkeypatch):
    for name in ("LAUNCHES", "ROWWISE", "PRODUCTS"):  # tests/conftest.py leaves out a part of it
        monkeypatch.setattr(timing, name, 2)
    assert GAUGE.call() == GAUGE.call() and GAUGE.call().isfinite()


def test_on_a_gpu_all_times_count_and_the_threads_stay_on_one_core():
    found = timing.gauge(torch.device("meta"))  # any device but the CPU
    assert (found.share, found.quiet, found.still) == (1.0, 0.5, one_core)
    assert (GAUGE.quiet, GAUGE.still) == (0.1, nullcontext)


@torch.no_grad()
def test_the_backward_pass_of_a_gpu_is_timed_also_where_models_need_no_gradients():
    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, call, types, args=(), kwargs=None):
            Counting.calls += 1
            return call(*args, **(kwargs or {}))

    backward = timing._backward(torch.device("cpu"))
    with Counting():
        backward()
    assert Counting.calls > 4 * BACKWARD


def test_runs_in_order_and_back_in_reverse():
    clock = Steps()
    clock.timed(clock.run("a", 1.0, 2.0), clock.run("b", 3.0), clock.run("c", 4.0, 5.0))
    calls = [each for each in clock.ran if each[0] != "prepare"]
    assert calls[-5:] == [("call", "a"), ("call", "b"), ("call", "c"), ("back", "c"), ("back", "a")]


def test_the_first_call_of_a_piece_and_later_ones_have_their_own_times():
    clock = Steps()
    found = clock.timed(clock.run("a", 1.0, 2.0), clock.run("b", 7.0), clock.run("a", 4.0, 5.0))
    times = by_key("aba", found, GAUGE, 0.5)
    assert (times["a"].first.median, times["a"].later.median) == (3.0, 9.0)
    assert (times["b"].first.median, times["b"].later.median) == (7.0, 7.0)


def test_the_quietest_third_of_the_rounds_counts():
    clock = Steps()
    found = by_key("ab", clock.timed(waits(9.0, 5.0, 1.0, 1.1), clock.run("b", 7.0)), GAUGE, 0.5)
    assert (found["a"].first.samples, found["b"].first.samples) == ((1.0, 1.1), (7.0, 7.0))


@pytest.mark.parametrize(("seconds", "rounds"), [(1000.0, 5), (0.0, 1), (8.0, 3)])
def test_ends_in_time_after_one_round_at_least(seconds, rounds):
    """A round is three calls of the clock; the first one does not count if there is time."""
    clock = Steps()
    found = clock.timed(clock.run("a", 1.0), seconds=seconds)
    assert len(clock.called()) == rounds and sum(map(len, found)) == max(1, rounds - 1)


def test_untimed_rounds_come_before_each_timed_one():
    clock = Steps()
    clock.timed(clock.run("a", 1.0), clock.run("b", 2.0), warm=2)
    assert clock.called() == ["a", "b"] * 3 * 5


def test_a_round_is_divided_by_the_gauge_around_it():
    clock, gauged = Steps(), itertools.cycle([0.4, 0.4, 0.6, 0.6])  # it runs once before it is timed
    found = clock.timed(clock.run("a", 3.0), gauge=lambda: next(gauged))
    assert by_key("a", found, GAUGE, 0.25)["a"].first.median == approx(1.5)


@pytest.mark.parametrize(("times", "builds"), [([100.0], 2), ([*range(100, 0, -5)], 2 * MOST)])
def test_it_is_built_more_often_while_the_times_are_uncertain(times, builds):
    found = Steps().timed(waits(*times), builds=2, most=2 * MOST)
    assert len(found) == builds


@pytest.mark.parametrize("share", [1 / 3, 1.0])
@pytest.mark.parametrize("times", [[20000.0, 3.0], [5.0, 25000.0, 3.0]], ids=["at once", "after a warm-up"])
def test_a_process_that_stood_still_in_its_only_sample_takes_another_one(of_calls, times, share):
    found = of_calls(times, share)
    assert (found.milliseconds, found.samples) == (3.0, 2)
    assert found.low < 3.0 and found.high > 20000.0


def test_a_slow_model_runs_once_more_than_the_time_allows(of_calls):
    assert of_calls([30000.0, 30000.0], 1.0).samples == 2


@pytest.mark.parametrize("still", [5, 7, 9, 13, 15, 17, 19])
def test_a_process_that_stood_still_in_the_gauge_does_not_make_a_model_fast(of_calls, still):
    found = of_calls(itertools.repeat(3.0), 1 / 3, still)
    assert found.milliseconds == approx(3.0) and found.low > 2.9


@pytest.fixture
def of_calls(monkeypatch):
    """`of_calls(times, share)`: the latency if the calls take these milliseconds, and there are 20 seconds.

    still: the place of the call of the gauge within which the process stands still for 20 seconds. It is called four
    times a round, twice before and twice after it, and timed the second time.
    """

    class Watch:
        milliseconds = 0.0

        def now(self):
            return self.milliseconds / 1e3

        def time(self, call):
            taken = call()
            self.milliseconds += taken
            return taken

    def latency(calls, share, still=-1):
        times, gauged = iter(calls), itertools.count()

        def gauge():
            return 20000.0 if next(gauged) == still else 1.0

        watch = Watch()
        monkeypatch.setattr(timing, "clock", lambda setting: watch)
        monkeypatch.setattr(timing, "gauge", lambda where: Gauge(gauge, share=share))
        monkeypatch.setattr(runs, "run", lambda *given: (None, Run(lambda: None, lambda: next(times))))
        monkeypatch.setattr(served, "by", lambda run: ())
        setting = Setting(phase="prefill", length=512, threads=1)
        return measured.latency(None, setting, budget_seconds=20.0, quiet=1.0)

    return latency


def test_what_counts_runs_while_the_threads_are_still_and_the_warm_up_before_it(monkeypatch):
    ran = []

    @contextmanager
    def still():
        ran.append("still")
        yield
        ran.append("free")

    gauge = Gauge(lambda: ran.append("gauge") or 0.5, still=still)
    once = ["gauge", "gauge", "call", "gauge", "gauge"]
    run = Run(lambda: None, lambda: ran.append("call") or 1.0)
    timed(lambda: [run], Steps(), gauge, 0.5, builds=1, most=1, rounds=2)
    assert ran == [*once, "still", *once, *once, "free"]
    ran.clear()
    monkeypatch.setattr(timing, "gauge", lambda where: gauge)
    monkeypatch.setattr(timing, "GAUGE_SECONDS", 0.0)
    timing.quiet_gauge("cpu", 1)
    assert ran[-3:] == ["still", "gauge", "free"]
