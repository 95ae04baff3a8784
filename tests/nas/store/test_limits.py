"""No number that a store accepts damages a row: it reads back, and the row agrees with its checksum."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nas.documents import Documents
from nas.store.limits import LONGEST_LEASE
from nas.store.upkeep.damage import damage
from nas.work import Progress

OWNER = "host:1:a"
FITTING = {"cheap": 1.0, "flops": 1.0, "lease": 60.0, "sample": 1.0, "bits": 1.0, "metric": 1.0, "loss": 1.0}
FITTING |= {"total": 1.0, "seconds": 1.0, "rate": 1.0, "last": True}
NUMBERS = st.floats() | st.integers(-(2**70), 2**70) | st.just(10**400)
numbers = st.fixed_dictionaries({name: st.just(value) | NUMBERS for name, value in FITTING.items()})


def written(store, study, add, number, given):
    """Write a trial with all these numbers. Raises ValueError if the store refuses one."""
    added = add(
        store, study, number, owner=OWNER, lease_seconds=given.lease, cheap_values={"cheap": given.cheap},
        costs=(1, given.flops), evidence={"cheap": {"samples": [given.sample]}},
    )  # fmt: skip
    store.renew([added.unit.id], OWNER, given.lease, {added.unit.id: Progress(1, 2, 1.0, given.rate)})
    ended = added.unit.id, OWNER, added.unit.attempt
    if not given.last:
        store.fail(*ended, "task error", "why", given.seconds)
    store.finish(
        *ended, {"bits": given.bits, "accuracy": 1.0}, {"metric": given.metric}, curve=[(1, given.loss)],
        seconds=given.seconds, last=True, by_document={"test": Documents("bits", ("a",), [given.total], [1.0])},
    )  # fmt: skip


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(numbers, min_size=1, max_size=10))
@example(
    [FITTING, FITTING | {"metric": math.nan, "loss": math.inf, "total": math.nan, "rate": math.nan, "bits": 2**70}]
)
@example([FITTING | {name: value} for name in FITTING for value in (math.nan, -math.inf, 10**400)])
def test_a_row_that_was_written_agrees_with_its_checksum(store, study, add, values):
    for each in values:
        number = sum(count.trials for count in store.counts(study.id))
        try:
            written(store, study, add, number, SimpleNamespace(**each))
        except (ValueError, OverflowError):  # the last by NumPy, about the total
            assert each != FITTING
    assert damage(store.database) == []
    store.owners(study.id)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 10**400], ids=["nan", "inf", "negative", "huge"])
def test_a_time_that_cannot_be_is_refused_and_the_unit_stays(store, study, add, seconds):
    unit = add(store, study, 0, owner=OWNER).unit
    with pytest.raises(ValueError, match="'seconds' must be"):
        store.finish(unit.id, OWNER, 1, {"bits": 1.0}, last=True, seconds=seconds)
    with pytest.raises(ValueError, match="'seconds' must be"):
        store.fail(unit.id, OWNER, 1, "task error", "why", seconds)
    assert store.finish(unit.id, OWNER, 1, {"bits": 1.0}, last=True, seconds=0.0) == 1


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 2 * LONGEST_LEASE], ids=["nan", "inf", "long"])
def test_a_lease_without_an_end_is_refused(store, study, add, seconds):
    unit = add(store, study, 0, owner=OWNER).unit
    for call in (
        lambda: add(store, study, 1, owner=OWNER, lease_seconds=seconds),
        lambda: store.lease(study.id, OWNER, 1, seconds),
        lambda: store.renew([unit.id], OWNER, seconds),
        lambda: store.promote(unit.trial_id, 1, 200, owner=OWNER, lease_seconds=seconds),
    ):
        with pytest.raises(ValueError, match="A lease has at most 1000000000 seconds"):
            call()
