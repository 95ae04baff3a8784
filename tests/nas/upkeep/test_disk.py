"""A search warns before the disk is full, pauses, and goes on when there is space."""

from pathlib import Path

import pytest

from nas.upkeep.disk import (
    FULL_SECONDS,
    LOOK_SECONDS,
    RESERVE,
    WARN_TIMES,
    Disks,
    free_bytes,
)

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


class Machine:
    """A disk and a clock that the test sets."""

    def __init__(self) -> None:
        self.bytes, self.seconds, self.said = 100 * RESERVE, 0.0, []
        self.disks = Disks([Path("/")], self.said.append, lambda place: self.bytes, lambda: self.seconds)

    def allows(self, free: int) -> bool:
        self.bytes, self.seconds = free, self.seconds + LOOK_SECONDS
        return self.disks.allow()


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_search_warns_once_before_it_pauses_and_goes_on_when_there_is_space(machine):
    answers = [machine.allows(free) for free in (100 * RESERVE, 5 * RESERVE, 4 * RESERVE, RESERVE - 1, 2 * RESERVE)]

    assert answers == [True, True, True, False, True]
    assert [text.split(" ")[0] for text in machine.said] == ["Warning:", "Paused:", "There"]
    assert "nas clean" in machine.said[1]


def test_the_larger_the_checkpoints_the_earlier_it_pauses(machine):
    assert machine.allows(2 * RESERVE)
    machine.disks.hold(3, RESERVE)

    assert not machine.allows(2 * RESERVE) and machine.allows(4 * RESERVE)


def test_after_a_failed_write_it_waits_although_there_seems_to_be_space(machine):
    machine.disks.failed("The quota is full.")
    assert not machine.allows(WARN_TIMES * RESERVE)
    machine.seconds += FULL_SECONDS

    assert machine.allows(WARN_TIMES * RESERVE)


def test_a_search_without_local_folders_never_pauses():
    assert Disks([], print).allow()


@NEEDS_PROC
def test_a_file_system_without_a_size_is_not_full():
    assert free_bytes(Path("/proc")) > 1000 * RESERVE
