"""A value that a trial gets later may be checked against the first value of its name, on every kind of database."""

import pytest

SPEED = {"name": "laptop_ms", "direction": "minimize"}


@pytest.fixture
def give(store, study, add):
    """`give(number, value, device)`: a value of a new trial."""

    def give_value(number, value, device, **more):
        add(store, study, number)
        return store.add_value(store.trial(study.id, number).id, SPEED, value, {"device": device}, **more)

    return give_value


def test_later_values_are_checked_against_the_first_one(store, study, give):
    seen = []
    assert give(0, 1.0, "one", check=seen.append) and give(1, 2.0, "two", check=seen.append)
    assert seen == [{"device": "one"}] and store.trial(study.id, 1).cheap_values == {"laptop_ms": 2.0}


def test_a_value_that_is_refused_changes_nothing(store, study, give):
    def refuse(evidence):
        raise RuntimeError("another device")

    give(0, 1.0, "one")
    with pytest.raises(RuntimeError, match="another device"):
        give(1, 2.0, "two", rung=2, check=refuse)
    assert store.trial(study.id, 1).cheap_values == {} and store.results_since(study.id) == []
