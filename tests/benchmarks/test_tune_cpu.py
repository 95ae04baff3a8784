"""What the benchmark of tuning on a CPU compares gives the same numbers, and its summary counts what is slower."""

import time

import pytest
import torch

from benchmarks import tune_cpu
from benchmarks.tune_cpu import WRITTEN, both_ways, compared, eager, reasons, served, slower, summary
from kernels.dispatch import registry, tuned
from kernels.dispatch.registry import Choice
from tuner.measure.interval import Interval
from tuner.measure.measure import timing
from tuner.search.decision import Decision


@pytest.mark.parametrize("name", list(WRITTEN))
def test_what_is_written_as_products_is_the_definition(name):
    operation = registry.operation(name)
    problem = next(iter(operation.problems("cpu").values()))
    sizes = {"batch": 1, "heads": 2, "positions": 9, "features": 4, "width": 3}
    small = operation.problem("cpu", "float64", tuple(sizes.values()), tuple(value for _, value in problem.flags))
    args, kwargs = operation.inputs(small, 0)

    expected, _ = operation.reference(*args, **kwargs)
    torch.testing.assert_close(WRITTEN[name](*args, **kwargs), expected)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "decode_attention"])
def test_rivals_compute_the_same_and_their_gradients(name):
    operation = registry.operation(name)
    tuned.use("cpu", tuned.Table())
    for problem in operation.problems("cpu").values():
        if dict(problem.sizes).get("rows", 512) > 512 or dict(problem.sizes).get("keys", 512) > 512:
            continue
        args, kwargs = operation.inputs(problem, 0)
        torch.default_generator.manual_seed(0)
        ours = both_ways(served(operation, problem), args, kwargs)()
        torch.default_generator.manual_seed(0)
        theirs = both_ways(eager(operation, problem)[1], args, kwargs)()
        torch.testing.assert_close(ours, theirs)
    tuned.use("cpu", None)


def test_short_calls_are_timed_as_single_calls():
    x = torch.ones(4)
    found = compared({"one": lambda: x + 1, "other": lambda: x + 2}, 0.05)

    assert set(found) == {"one", "other"}
    assert all(0 < timing.median < 1 for timing in found.values())


def line(operation, eager, compiled, width=0.1):
    ratios = [each and Interval(each, each - width, each + width, 0.95) for each in (eager, compiled)]
    told = {"over_eager": ratios[0], "over_compiled": ratios[1] or "not compiled"}
    return {"operation": operation, **told, "slower": any(each and each.high < 1 for each in ratios)}


def test_a_look_up_is_forgiven_and_more_is_not():
    def around(milliseconds):
        return timing([milliseconds * (1 + 0.001 * number) for number in range(9)])

    assert not slower(around(0.020), around(0.024))
    assert slower(around(0.020), around(0.026))
    assert slower(around(2.0), around(2.4))


@pytest.mark.parametrize("again", [1.0, 1.5])
def test_what_looks_slower_is_compared_again_elsewhere_and_only_that_counts(monkeypatch, again):
    asked = []

    def found(ours):
        return {name: timing([ms] * 9) for name, ms in (("tuned", ours), ("eager", 1.0))}, ""

    def pretended(operation, problem, limit, *more):
        asked.append(more)
        return found(again)

    monkeypatch.setattr(tune_cpu, "timed_elsewhere", pretended)
    operation = registry.operation("softmax")
    label, problem = next(iter(operation.problems("cpu").items()))

    monkeypatch.setattr(tune_cpu, "timed", lambda *arguments: found(1.0))
    assert not tune_cpu.row(operation, label, problem, 1.0, 2.0)["slower"]
    monkeypatch.setattr(tune_cpu, "timed", lambda *arguments: found(1.5))
    assert tune_cpu.row(operation, label, problem, 1.0, 2.0)["slower"] == (again > 1.0)
    assert asked == [(6.0, 93)]


def test_a_new_process_times_the_same_calls():
    operation = registry.operation("softmax")
    problem = operation.problem("cpu", "float32", (4, 8), (False,))
    found, _ = tune_cpu.timed_elsewhere(operation, problem, 0.001, 0.01, 2)

    assert {"tuned", "eager"} <= found.keys()
    assert all(each.median > 0 for each in found.values())


def test_a_time_limit_holds_although_its_first_error_is_lost():
    lost = []
    with pytest.raises(TimeoutError, match="not compiled within 0 s"), tune_cpu._within(0.001):
        while True:
            try:
                time.sleep(60)
            except TimeoutError as error:
                if lost:
                    raise
                lost.append(error)


def test_notes_say_why_the_tuner_chose_what_is_slower():
    shapes = registry.operation("softmax").problems("cpu")
    lines = [{"operation": "softmax", "shape": name, "slower": name == "512x64"} for name in shapes]
    default = Choice.of("torch")
    made = [Decision(each, default, default, 1.0, "too noisy", failures={"timed out": 2}) for each in shapes.values()]

    assert reasons(lines, made) == ["softmax 512x64: too noisy, 2 timed out"]
    assert reasons(lines, []) == []


def test_the_summary_means_over_operations_and_counts_what_is_slower():
    rows = summary([line("a", 4.0, 1.0), line("a", 1.0, 4.0), line("b", 2.0, None), line("b", 0.5, 1.0)])
    times = [row["times"] for row in rows]

    assert times[0] == pytest.approx(2**0.5)  # 2 and 1
    assert times[1] == pytest.approx(2**0.5)  # 2 and 1, of those that compiled
    assert times[2] == pytest.approx(1.0)  # of 1 and 1, 2 and 0.5
    assert times[3] == 1
