"""What is measured if there is little time, with a clock that goes on by what each call says."""

from contextlib import contextmanager
from itertools import count, repeat

import pytest

from nas.latency import measured, runs, served
from nas.latency.gauge import Gauge
from nas.latency.runs import Run, Setting


class Watch:
    """The time of everything is in milliseconds that the calls return."""

    def __init__(self):
        self.milliseconds = 0.0

    def now(self):
        return self.milliseconds / 1e3

    monotonic = now

    def time(self, call):
        taken = call()
        self.milliseconds += taken
        return taken


@pytest.fixture
def taken(monkeypatch):
    """`taken(calls, share)`: the latency if the calls take these milliseconds, and there are 20 seconds.

    still: the place of the call of the gauge within which the process stands still for 20 seconds. It is called four
    times a round, twice before and twice after it, and timed the second time.
    """

    def latency(calls, share, still=-1):
        watch, times, gauged = Watch(), iter(calls), count()

        def gauge():
            return 20000.0 if next(gauged) == still else 1.0

        monkeypatch.setattr(measured, "time", watch)
        monkeypatch.setattr(measured, "clock", lambda setting: watch)
        monkeypatch.setattr(measured.gauges, "gauge", lambda where: Gauge(gauge, share=share))
        monkeypatch.setattr(runs, "run", lambda *given: (None, Run(lambda: None, lambda: next(times))))
        monkeypatch.setattr(served, "by", lambda run: ())
        setting = Setting(phase="prefill", length=512, threads=1)
        return measured.latency(None, setting, budget_seconds=20.0, quiet=1.0)

    return latency


@pytest.mark.parametrize("share", [1 / 3, 1.0])
@pytest.mark.parametrize("calls", [[20000.0, 3.0], [5.0, 25000.0, 3.0]], ids=["at once", "after a warm-up"])
def test_a_process_that_stood_still_in_its_only_sample_takes_another_one(taken, calls, share):
    found = taken(calls, share)
    assert (found.milliseconds, found.samples) == (3.0, 2)
    assert found.low < 3.0 and found.high > 20000.0


def test_a_slow_model_runs_once_more_than_the_time_allows(taken):
    assert taken([30000.0, 30000.0], 1.0).samples == 2
    assert taken([11000.0, 11000.0], 1.0).samples == 2


@pytest.mark.parametrize("still", [5, 7, 9, 13, 15, 17, 19])
def test_a_process_that_stood_still_in_the_gauge_does_not_make_a_model_fast(taken, still):
    found = taken(repeat(3.0), 1 / 3, still)
    assert found.milliseconds == pytest.approx(3.0) and found.low > 2.9


def test_the_gauge_of_the_quiet_machine_runs_while_the_threads_are_still(monkeypatch):
    ran = []

    @contextmanager
    def still():
        ran.append("still")
        yield
        ran.append("free")

    gauge = Gauge(lambda: ran.append("gauge"), still=still)
    monkeypatch.setattr(measured.gauges, "gauge", lambda where: gauge)
    monkeypatch.setattr(measured, "GAUGE_SECONDS", 0.0)
    measured.quiet_gauge("cpu", 1)
    assert ran[:3] == ["gauge", "still", "gauge"] and ran[-1] == "free"
