import gc
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulated_gpu import Gpu

from tuner.measure import measure as clocks
from tuner.measure.measure import (
    CudaWallClock,
    ProcessorClock,
    Timing,
    clock_of,
    compare,
    measure,
    timing,
)


class Machine:
    """A pretended machine and its clock: every call takes as long as it says, and the machine may slow down."""

    def __init__(self, drift: float = 1.0) -> None:
        self.seconds = 0.0
        self.speed = 1.0
        self.drift = drift
        self.log: list[str] = []

    def now(self) -> float:
        return self.seconds

    def time(self, call) -> float:
        before = self.seconds
        call()
        return (self.seconds - before) * 1e3

    def task(self, name: str, milliseconds: float = 1.0):
        def run():
            self.log.append(name)
            self.seconds += milliseconds * self.speed / 1e3
            self.speed *= self.drift

        return run


def test_candidates_take_turns_after_the_warm_up():
    machine = Machine()
    timings = measure({name: machine.task(name) for name in "abc"}, warmup=1, repeats=3, clock=machine, device="cpu")

    rounds = ["".join(machine.log[start : start + 3]) for start in range(0, 12, 3)]
    assert [sorted(each) for each in rounds] == [list("abc")] * 4
    assert [len(timings[name].samples) for name in "abc"] == [3, 3, 3]


def test_nobody_always_follows_the_same_other():
    machine = Machine()
    measure({name: machine.task(name) for name in "abc"}, warmup=0, repeats=40, clock=machine)
    before = {(one, other) for one, other in zip(machine.log, machine.log[1:], strict=False) if one != other}

    assert len(before) == 6


def test_a_sample_is_the_time_of_one_call_in_milliseconds():
    machine = Machine()
    timings = measure({"fast": machine.task("fast", 2), "slow": machine.task("slow", 7)}, clock=machine)

    assert timings["fast"].median == pytest.approx(2)
    assert timings["slow"].median == pytest.approx(7)


def test_a_machine_that_slows_down_while_measuring_does_not_change_the_comparison():
    machine = Machine(drift=1.01)
    timings = measure({"a": machine.task("a", 2), "b": machine.task("b", 4)}, repeats=50, clock=machine)
    ratio = compare(timings["a"], timings["b"])

    assert timings["a"].samples[-1] > 2 * timings["a"].samples[0]
    assert ratio.median == pytest.approx(0.5, rel=0.011)  # one or the other was first
    assert ratio.high - ratio.low < 0.02


def test_goes_on_until_enough_has_been_measured():
    machine = Machine()
    timings = measure({"a": machine.task("a", 10)}, repeats=2, min_seconds=0.095, clock=machine)

    assert len(timings["a"].samples) == 10


def test_stops_at_the_end_of_the_budget():
    machine = Machine()
    timings = measure({"a": machine.task("a", 10)}, warmup=2, repeats=100, budget_seconds=0.055, clock=machine)

    assert len(timings["a"].samples) == 4


@pytest.mark.parametrize("warmup", [0, 5])
def test_one_round_is_timed_when_there_is_no_budget_at_all(warmup):
    machine = Machine()
    timings = measure({"a": machine.task("a")}, warmup=warmup, budget_seconds=0, clock=machine)

    assert machine.log == ["a"]
    assert len(timings["a"].samples) == 1
    assert timings["a"].coverage == 0


def test_a_least_number_of_rounds_is_timed_however_long_they_take():
    machine = Machine()
    timings = measure(
        {"a": machine.task("a", 30.0), "b": machine.task("b", 15.0)}, least=7, budget_seconds=0.05, clock=machine
    )

    assert len(timings["a"].samples) == len(timings["b"].samples) == 7
    assert compare(timings["b"], timings["a"]).high < 1


def test_preparation_comes_before_every_call_and_is_not_timed():
    machine = Machine()
    timings = measure(
        {"a": machine.task("a", 1), "b": machine.task("b", 1)},
        warmup=1,
        repeats=2,
        prepare={"b": machine.task("prepare b", 50)},
        clock=machine,
    )

    assert sorted(machine.log) == ["a"] * 3 + ["b"] * 3 + ["prepare b"] * 3
    assert all(machine.log[place + 1] == "b" for place, name in enumerate(machine.log) if name == "prepare b")
    assert timings["b"].median == pytest.approx(1)


def test_the_garbage_collector_rests_while_calls_are_timed_and_only_then():
    seen = []
    measure({"a": lambda: seen.append(gc.isenabled())}, repeats=2)

    assert set(seen) == {False}
    assert gc.isenabled()


def test_the_garbage_collector_comes_back_after_a_failure_and_the_candidate_is_named():
    def broken():
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel") as caught:
        measure({"fine": lambda: None, "broken": broken})

    assert caught.value.__notes__ == ["while timing 'broken'"]
    assert caught.value.candidate == "broken"
    assert gc.isenabled()


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.floats(0.1, 10))
def test_a_timing_compared_with_itself_scaled_gives_the_scale(samples, scale):
    ratio = compare(timing([scale * x for x in samples]), timing(samples))

    assert ratio.low == pytest.approx(scale)
    assert ratio.high == pytest.approx(scale)


def test_comparing_with_a_call_too_short_for_the_clock_gives_a_number():
    assert compare(timing([1.0]), timing([0.0])).median == pytest.approx(1e6)


def test_rejects_a_comparison_of_unpaired_timings():
    with pytest.raises(ValueError, match="but got 1 and 2"):
        compare(timing([1.0]), timing([1.0, 2.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": {}}, "nothing to measure"),
        ({"candidates": {"a": int}, "repeats": 0}, "at least 1, but got 2 and 0"),
        ({"candidates": {"a": int}, "warmup": -1}, "but got -1 and 20"),
        ({"candidates": {"a": int}, "prepare": {"b": int}}, r"names \['b'\]"),
        ({"candidates": {"a": int}, "device": "tpu"}, "'cuda:N', but got 'tpu'"),
    ],
    ids=["no-candidates", "no-repeats", "negative-warmup", "unknown-prepare", "unknown-device"],
)
def test_rejects_what_cannot_be_measured(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(**arguments)


def test_the_processor_is_timed_by_default():
    timings = measure({"nothing": lambda: None}, repeats=4)

    assert isinstance(clock_of("cpu"), ProcessorClock)
    assert isinstance(timings["nothing"], Timing)
    assert all(sample >= 0 for sample in timings["nothing"].samples)


@pytest.mark.cuda
def test_twice_the_work_takes_longer_on_the_gpu():
    x = torch.randn(2048, 2048, device="cuda")
    timings = measure({"one": lambda: x @ x, "eight": lambda: [x @ x for _ in range(8)]}, device="cuda")

    assert compare(timings["eight"], timings["one"]).low > 1


@pytest.mark.parametrize("launches", [1, 3])
@pytest.mark.parametrize("host", [0.01, 0.3, 4.0])
def test_the_time_on_a_gpu_leaves_out_the_launch(monkeypatch, host, launches):
    gpu = Gpu()
    clock = gpu.patch(monkeypatch)

    def call():
        for _ in range(launches):
            gpu.launch(0.05, host)

    for _ in range(3):
        assert clock.time(call) == pytest.approx(launches * 0.05)


def test_a_call_that_waits_for_the_gpu_is_timed_nevertheless(monkeypatch):
    gpu = Gpu()
    clock = gpu.patch(monkeypatch)

    def call():
        gpu.launch(1.0)
        torch.cuda.synchronize(None)  # as `.item()` does
        gpu.launch(1.0, host=0.5)

    assert clock.time(call) == pytest.approx(2.5)


def test_a_first_call_that_compiles_for_minutes_makes_no_long_spin(monkeypatch):
    gpu = Gpu()
    clock = gpu.patch(monkeypatch)
    hosts = iter([60_000.0, *[0.1] * 99])
    assert clock.time(lambda: gpu.launch(0.05, next(hosts))) == pytest.approx(0.05)
    assert gpu.host < 60_100


def test_a_call_that_is_launched_for_long_is_not_repeated_in_vain(monkeypatch):
    gpu, calls = Gpu(), []
    clock = gpu.patch(monkeypatch)

    def call():
        calls.append(None)
        gpu.launch(1.0, host=100.0)

    for _ in range(4):
        assert clock.time(call) > 80
    assert len(calls) == 1 + 2 + 1 + 1 + 1, "once to raise the frequency, and twice until the spin is the longest"


def test_calls_that_take_turns_keep_the_spin_that_each_needs(monkeypatch):
    gpu, called = Gpu(), Counter()
    clock = gpu.patch(monkeypatch)

    def launched(name, host):
        def call():
            called[name] += 1
            gpu.launch(0.05, host)

        return call

    clock.time(lambda: gpu.launch(0.05, 1.0))  # raises the frequency
    hosts = {"short": 0.01, "long": 4.0, "longest": 100.0}
    found = measure({name: launched(name, host) for name, host in hosts.items()}, repeats=8, warmup=2, clock=clock)

    assert called["short"] == 8 + 2
    assert max(called.values()) <= 8 + 2 + 2, "until its spin is known"
    assert [found[name].median for name in ("short", "long")] == [pytest.approx(0.05)] * 2
    del found
    assert not clock.spins, "a call is not kept alive"


def test_any_object_that_can_be_called_is_timed_on_a_gpu(monkeypatch):
    gpu = Gpu()
    clock = gpu.patch(monkeypatch)

    class Slots:
        __slots__ = ()

        def __call__(self):
            gpu.launch(0.05, 0.01)

    class Equal(Slots):  # without a hash, as a dataclass
        def __eq__(self, other):
            return True

    for call in (Slots(), Equal()):
        assert clock.time(call) == pytest.approx(0.05)


def test_latency_on_a_gpu_includes_the_launch(monkeypatch):
    gpu = Gpu()
    gpu.patch(monkeypatch)
    assert CudaWallClock(torch.device("cuda")).time(lambda: gpu.launch(0.05, 0.3)) == pytest.approx(0.35)


def test_the_buffer_that_clears_the_cache_follows_its_size(monkeypatch):
    for cache, expected in ((50 * 2**20, clocks.FLUSH_BYTES), (400 * 2**20, 800 * 2**20)):
        gpu = Gpu(cache=cache)
        gpu.patch(monkeypatch)
        assert gpu.buffers == [expected]


def test_the_best_candidate_is_not_discarded_because_the_gpu_was_idle_before(monkeypatch):
    """While a candidate is compiled, the GPU is idle and lowers its frequency."""
    gpu = Gpu(ramp=40.0)
    clock = gpu.patch(monkeypatch)
    times = {}
    for name, busy in (("first", 1.0), ("best", 0.5)):
        gpu.host += 5_000  # the compiler
        times[name] = clock.time(lambda busy=busy: gpu.launch(busy))

    assert times == {"first": pytest.approx(1.0), "best": pytest.approx(0.5)}


def test_gaps_between_the_launches_of_a_backward_pass_are_not_counted(monkeypatch):
    gpu = Gpu()
    clock = gpu.patch(monkeypatch)

    def training_step():
        for _ in range(4):
            gpu.launch(0.05, host=0.2)  # the host is slower than the kernels

    clock.time(training_step)
    assert clock.time(training_step) == pytest.approx(0.2)
