"""What the tuner measured is kept as it was, on both databases."""

from dataclasses import replace

import pytest

from nas.store import Measurement
from nas.store.measurements import add

DEVICE = {"key": "d1", "kind": "cpu", "name": "a processor", "torch": "2.13"}
TIMED = Measurement(
    operation="rms_norm",
    problem='{"sizes":[["rows",4]]}',
    dtype="float32",
    implementation="torch",
    configuration="{}",
    source="5eed",
    milliseconds=0.5,
    low=0.25,
    high=1.0,
    samples=(0.25, 0.5, 1.0),
    turns="t1",
    resources={"registers": 255, "spills": 4, "shared": 49152, "warps": 8},
)
FAILED = replace(
    TIMED, implementation="triton", milliseconds=None, low=None, high=None, samples=(), failure="crashed", message="\0"
)
FAILED = replace(FAILED, resources=None)


def test_measurements_come_back_as_they_were_in_order(store):
    store.add_measurements(DEVICE, [TIMED, FAILED])
    store.add_measurements(DEVICE, [replace(TIMED, operation="softmax")])

    assert store.measurements("rms_norm") == [
        replace(TIMED, device="d1"),
        replace(FAILED, device="d1", message="\\x00"),
    ]
    assert store.devices() == {"d1": DEVICE}


def test_measurements_are_found_by_operation_device_and_problem(store):
    store.add_measurements(DEVICE, [TIMED])
    store.add_measurements({**DEVICE, "key": "d2"}, [replace(TIMED, problem="{}")])

    assert [each.device for each in store.measurements()] == ["d1", "d2"]
    assert [each.device for each in store.measurements(device="d2")] == ["d2"]
    assert [each.device for each in store.measurements("rms_norm", problem=TIMED.problem)] == ["d1"]
    assert store.measurements("softmax") == []


def test_a_call_that_is_repeated_after_a_lost_answer_adds_nothing(store):
    for _ in range(2):
        store.database.write(lambda connection: add(connection, "one call", DEVICE, [TIMED, FAILED]))

    assert len(store.measurements()) == 2


def test_either_all_of_a_call_is_kept_or_nothing(store):
    neither = replace(TIMED, milliseconds=None)
    with pytest.raises(Exception, match="time_or_failure"):
        store.add_measurements(DEVICE, [TIMED, neither])

    assert store.measurements() == []
