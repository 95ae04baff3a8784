"""No configuration is left out that could have won, and what a device cannot do in time is not tried."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.dispatch import registry, work
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem
from tuner.measure import roofline
from tuner.measure.measure import ProcessorClock
from tuner.measure.roofline import Probe, Rates, bound, promising


def operation(made):
    several = {"counted": Implementation("counted", abs, work=made), "other": Implementation("other", abs)}
    return Operation("op", abs, several, lambda p, s: ((), {}), lambda d: {}, lambda p: "other", sizes=("n",))


PROBLEM = Problem("op", "cpu", "float32", (("n", 8),))


@given(flops=st.floats(0, 1e15), moved=st.floats(0, 1e12), peak=st.floats(1e9, 1e15), copied=st.floats(1e9, 1e13))
def test_a_bound_is_the_longer_of_computing_and_moving(flops, moved, peak, copied):
    rates = Rates(lambda probe: peak if probe.bytes is None else copied)
    found = bound(operation(lambda c, p: (flops, moved)), PROBLEM, Choice.of("counted"), rates)

    assert found == pytest.approx(1e3 / roofline.SLACK * max(flops / peak, moved / copied))
    assert bound(operation(None), PROBLEM, Choice.of("counted"), rates) == 0.0
    assert bound(operation(lambda c, p: (flops, moved)), PROBLEM, Choice.of("nobody"), rates) == 0.0


def test_a_rate_is_measured_once():
    asked = []
    rates = Rates(lambda probe: asked.append(probe) or 1.0)
    for _ in range(3):
        rates(Probe("float32"))
    assert asked == [Probe("float32")]


@pytest.mark.parametrize("probe", [Probe("float32"), Probe("uint8", 2**12)])
def test_this_device_has_rates(probe):
    found = roofline.rate(probe, "cpu", ProcessorClock())
    assert math.isfinite(found)
    assert found > 1e6


def test_what_could_be_fastest_comes_first_unless_all_bounds_are_one():
    assert promising([3.0, 1.0, 2.0, 4.0]) == (1, 2)
    assert promising([2.0, 2.0]) == promising([]) == ()


def test_the_work_of_every_configuration_is_at_least_that_of_the_inputs():
    """Held to a count that is surely too low: every input is read once, and scores take a product of the widths."""
    for name in ("attention", "linear_attention", "decayed_linear_attention"):
        found = registry.operation(name)
        for problem in (each for device in ("cpu", "cuda") for each in found.problems(device).values()):
            counted = [each for each in found.implementations.values() if each.work]
            assert counted
            for each in counted:
                flops, moved = each.work(each.default_for(problem), problem)
                assert flops > 0
                assert moved > work.SIZES.get(problem.dtype, 2) * problem["batch"] * problem["width"]


def test_tiles_that_are_larger_than_the_problem_compute_more():
    found = registry.operation("attention")
    problem = next(each for each in found.problems("cuda").values() if not each["causal"])
    short = Problem(
        *(problem.operation, "cuda", problem.dtype),
        tuple((name, 40 if name in ("queries", "keys", "reach") else value) for name, value in problem.sizes),
        problem.flags,
    )
    small, large = (work.attention({"block_q": side, "block_k": 16}, short)[0] for side in (16, 256))
    assert large > 5 * small
