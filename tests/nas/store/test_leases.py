"""Leases: one holder at a time, by the clock of the database."""

import math

from sqlalchemy import update

from nas.store.models import unit as unit_table
from nas.store.types import now
from nas.work import Progress


def expire(store, unit_id):
    """Put the end of a lease into the past of the database's clock."""
    statement = update(unit_table).where(unit_table.c.id == unit_id).values(lease_expires=now() - 1)
    store.database.write(lambda connection: connection.execute(statement))


def test_an_expired_lease_is_taken_over_and_its_first_holder_is_turned_away(store, study, add):
    unit = add(store, study, 0, owner="one").unit
    expire(store, unit.id)
    assert store.owners(study.id) == []

    (taken,) = store.lease(study.id, "two")
    assert (taken.id, taken.attempt) == (unit.id, 2)
    assert store.renew([unit.id], "one") == []
    assert store.finish(unit.id, "one", 1, {"bits": 9.0}, last=True) is None
    assert store.finish(unit.id, "two", 2, {"bits": 1.0}, last=True) == 1
    assert store.trial(study.id, 0).values == {"bits": 1.0}


def test_a_running_unit_has_a_curve_with_a_point_for_each_renewal(store, study, add):
    unit = add(store, study, 0, owner="one").unit

    def renew(step, loss, owner="one"):
        return store.renew([unit.id], owner, 60, {unit.id: Progress(step, 50, loss, 100.0)})

    for step, loss in ((10, 4.5), (10, 4.5), (20, math.nan), (30, 3.25)):
        assert renew(step, loss) == [unit.id]
    assert store.curve(study.id, 0) == [(10, 4.5), (20, None), (30, 3.25)]

    expire(store, unit.id)
    store.lease(study.id, "two")
    assert store.curve(study.id, 0) == [], "the next holder starts from the last checkpoint"
    assert renew(40, 1.0) == []  # turned away
    renew(15, 4.0, "two")
    assert store.curve(study.id, 0) == [(15, 4.0)]
    store.finish(unit.id, "two", 2, {"bits": 1.0}, curve=[(25, 3.5), (50, 3.0)], last=True)
    assert store.curve(study.id, 0) == [(25, 3.5), (50, 3.0)]


def test_the_curve_of_a_running_unit_has_a_size_limit(store, study, add):
    unit = add(store, study, 0, owner="one").unit
    long = "".join(f"{step} 1.5\n" for step in range(1, 10_000))
    with store.database.engine.begin() as connection:
        connection.execute(update(unit_table).where(unit_table.c.id == unit.id).values(progress_curve=long))

    store.renew([unit.id], "one", 60, {unit.id: Progress(20_000, 50_000, 1.0, 100.0)})

    assert len(store.curve(study.id, 0)) == 9_999
    assert store.units(study.id, 0)[0].progress_step == 20_000


def test_the_database_sees_a_short_lease_end_by_itself(store, study, add):
    add(store, study, 0, owner="one", lease_seconds=-0.001)

    assert [unit.attempt for unit in store.lease(study.id, "two")] == [2]


def test_another_study_has_its_own_units(store, study, add):
    add(store, study, 0)
    other = store.create_study("other", {}, "kind: decoder", 0, [{"name": "bits", "direction": "minimize"}])

    assert store.lease(other.id, "one") == []
