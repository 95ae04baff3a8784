"""Something is timed in turns with the gauge, which runs before and after it."""

from contextlib import contextmanager

import pytest

from nas.latency.gauge import Gauge
from nas.latency.turns import in_turns


class Clock:
    """Each gauge takes as many milliseconds as gauges ran before; a second passes with each."""

    def __init__(self):
        self.ran, self.seconds = [], 0.0

    def now(self):
        return self.seconds

    def time(self, call):
        call()
        self.seconds += 1
        return float(self.ran.count("gauge"))


@pytest.mark.parametrize(("deadline", "counted"), [(9.0, 2), (3.0, 1), (0.0, 1)])
def test_each_round_has_the_gauge_around_it_and_one_counts_at_least(deadline, counted):
    clock = Clock()
    found = in_turns(
        lambda: clock.ran.append("call") or "result",
        Gauge(lambda: clock.ran.append("gauge")),
        clock,
        prepare=lambda: clock.ran.append("prepare"),
        warmup=1,
        rounds=2,
        deadline=deadline,
    )
    warmups = clock.ran.count("call") - counted
    assert warmups == (1 if deadline else 0)
    once = ["gauge", "gauge", "prepare", "call", "gauge", "gauge"]  # it runs once before it is timed
    assert clock.ran == once * (warmups + counted)
    assert found == [("result", 3.0 + 4 * number) for number in range(warmups, warmups + counted)]


def test_what_counts_runs_while_the_threads_are_still_and_the_warm_up_before_it():
    clock = Clock()

    @contextmanager
    def still():
        clock.ran.append("still")
        yield
        clock.ran.append("free")

    gauge = Gauge(lambda: None, still=still)
    in_turns(lambda: clock.ran.append("call"), gauge, clock, prepare=lambda: None, warmup=1, rounds=2)
    assert clock.ran == ["call", "still", "call", "call", "free"]
