"""Every schedule rises to its peak, never exceeds it, and ends at its floor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.errors import UsageError
from nas.training.schedules import make, schedules


@given(
    name=st.sampled_from(schedules()),
    horizon=st.integers(1, 500),
    warmup=st.one_of(st.floats(0, 0.9), st.integers(1, 100)),
)
def test_rates_rise_and_then_do_not_rise_again(name, horizon, warmup):
    schedule = make(name, {"warmup": warmup})
    rates = [schedule.rate(2.0, step, horizon) for step in range(horizon)]
    peak = rates.index(max(rates))
    assert all(0 <= rate <= 2.0 * (1 + 1e-12) for rate in rates)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)


@pytest.mark.parametrize(("name", "floor"), [("cosine", 0.1), ("linear", 0), ("warmup_stable_decay", 0)])
def test_the_rate_ends_at_the_floor_and_stays_there(name, floor):
    assert make(name).rate(3.0, 100, 100) == pytest.approx(3.0 * floor)
    assert make(name, {"floor": 0.5}).rate(3.0, 1000, 100) == pytest.approx(1.5)


def test_a_stable_rate_comes_down_only_at_the_end():
    schedule = make("warmup_stable_decay", {"warmup": 10, "decay": 20})
    assert [schedule.rate(1.0, step, 100) for step in (4, 10, 50, 80)] == [0.5, 1.0, 1.0, 1.0]
    assert schedule.rate(1.0, 90, 100) == 0.5


def test_unknown_schedules_are_rejected_with_the_nearest():
    with pytest.raises(UsageError, match=r"Did you mean 'cosine'\?"):
        make("cosin")
