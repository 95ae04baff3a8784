"""Pieces are timed in the order of a model: forwards in order, backward passes in reverse."""

import itertools

import pytest

from nas.latency import chain
from nas.latency.chain import COPIES, MOST, ROUNDS, WARMUP, Link, shortened, timed
from nas.latency.gauge import Gauge
from nas.latency.optimiser import interpolated
from nas.latency.runs import Run


class Steps:
    """A clock whose calls take the milliseconds that they say, and a record of what ran."""

    def __init__(self):
        self.ran, self.seconds = [], 0.0

    def now(self):
        return self.seconds

    def time(self, call):
        taken = call()
        self.seconds += 1
        return taken

    def link(self, key, forward, backward=None):
        def does(what, milliseconds):
            return lambda: self.ran.append((what, key)) or milliseconds

        back = None if backward is None else does("back", backward)
        return Link(key, Run(does("prepare", 0.0), does("call", forward), back))


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(chain, "BUILDS", 1)


def _timed(clock, links, **changes):
    how = {"gauge": Gauge(lambda: 0.5), "quiet": 0.5, "seconds": 1000.0, **changes}
    return timed(lambda: links, clock, **how)


def test_runs_in_order_and_back_in_reverse():
    clock = Steps()
    _timed(clock, [clock.link("a", 1.0, 2.0), clock.link("b", 3.0), clock.link("c", 4.0, 5.0)])
    calls = [each for each in clock.ran if each[0] != "prepare"]
    assert calls[-5:] == [("call", "a"), ("call", "b"), ("call", "c"), ("back", "c"), ("back", "a")]


def test_the_first_call_of_a_piece_and_later_ones_have_their_own_times():
    clock = Steps()
    found = _timed(clock, [clock.link("a", 1.0, 2.0), clock.link("b", 7.0), clock.link("a", 4.0, 5.0)])
    assert (found["a"].first.median, found["a"].later.median) == (3.0, 9.0)
    assert (found["b"].first.median, found["b"].later.median) == (7.0, 7.0)


@pytest.mark.parametrize(("seconds", "rounds"), [(1000.0, WARMUP + ROUNDS), (0.0, 1), (8.0, 3)])
def test_ends_in_time_after_one_round_at_least(seconds, rounds):
    """A round is three calls of the clock."""
    clock = Steps()
    _timed(clock, [clock.link("a", 1.0)], seconds=seconds)
    assert clock.ran.count(("call", "a")) == rounds


def test_a_process_that_stood_still_in_the_only_round_times_another_one(monkeypatch):
    monkeypatch.setattr(chain, "BUILDS", 2)
    clock, times = Steps(), iter([20000.0, 3.0])
    found = _timed(clock, [Link("a", Run(lambda: None, lambda: next(times)))], seconds=0.0)
    assert found["a"].first.samples == (3.0,)


def test_the_first_round_does_not_count_while_there_is_time():
    clock, times = Steps(), itertools.chain([0.1], itertools.repeat(2.0))
    found = _timed(clock, [Link("a", Run(lambda: None, lambda: next(times)))])
    assert found["a"].first.samples == (2.0, 2.0)  # of ROUNDS


def test_the_quietest_third_of_the_rounds_counts():
    clock, waits = Steps(), itertools.cycle([5.0, 1.0, 1.1, 9.0])
    link = Link("a", Run(lambda: None, lambda: next(waits)))
    found = _timed(clock, [link, clock.link("b", 7.0)])
    assert (found["a"].first.samples, found["b"].first.samples) == ((1.0, 1.1), (7.0, 7.0))


def test_untimed_rounds_come_before_each_timed_one():
    clock = Steps()
    _timed(clock, [clock.link("a", 1.0), clock.link("b", 2.0)], warm=2)
    calls = [key for what, key in clock.ran if what == "call"]
    assert calls == ["a", "b"] * 3 * (WARMUP + ROUNDS)


def test_a_round_is_divided_by_the_gauge_around_it():
    clock, gauged = Steps(), itertools.cycle([0.4, 0.4, 0.6, 0.6])  # it runs once before it is timed
    found = _timed(clock, [clock.link("a", 3.0)], gauge=Gauge(lambda: next(gauged)), quiet=0.25)
    assert found["a"].first.median == pytest.approx(1.5)


@pytest.mark.parametrize(("falling", "builds"), [(0.0, 1), (5.0, MOST)])
def test_links_are_built_more_often_while_their_times_are_uncertain(falling, builds):
    clock, times, made = Steps(), itertools.count(100.0, -falling), []

    def make():
        made.append([Link("a", Run(lambda: None, lambda: next(times)))])
        return made[-1]

    timed(make, clock, gauge=Gauge(lambda: 0.5), quiet=0.5, seconds=1000.0)
    assert len(made) == builds


def test_a_piece_is_there_at_most_so_often():
    assert shortened("abababab", 2) == list("abab")
    assert shortened("a" * 9) == ["a"] * COPIES


@pytest.mark.parametrize(("size", "time"), [(4, 1.0), (10, 1.0), (1000, 100.0), (100, 10.0), (2000, 200.0)])
def test_times_of_tensors_are_interpolated(size, time):
    assert interpolated((10, 1000), (1.0, 100.0), size) == pytest.approx(time)
