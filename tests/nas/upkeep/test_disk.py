"""A search warns before the disk is full, pauses, and goes on when there is space."""

import sys
from pathlib import Path

import pytest

from nas.errors import UsageError
from nas.upkeep import disk
from nas.upkeep.disk import (
    FULL_SECONDS,
    LOOK_SECONDS,
    RESERVE,
    WARN_TIMES,
    Disks,
    check_checkpoints,
    free_bytes,
    make_checkpoints,
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


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("{}/file/x", "/.*/file is not a folder"),
        ("{}/file", "/.*/file is not a folder"),
        ("{}/broken/x", "/.*/broken is not a folder"),
        ("{}/" + "x" * 300, "File name too long"),
        pytest.param("/proc/x", "/proc belongs to the kernel", marks=NEEDS_PROC),
        ("~no-such-user/x", "Could not determine home directory"),
        ("{}/a\0b", "embedded null byte"),
        ("foo://x", "Protocol not known: foo"),
        ("simplecache::foo://x", "Protocol not known: foo"),
        ("https://host/x", "files can only be read from https://"),
        ("HTTP://host/x", "files can only be read from http://"),
        ("SimpleCache::Memory://Host/x", "a protocol has small letters: simplecache::memory://Host/x"),
        ("://x", "it names no protocol"),
        ("::memory://x", "it names no protocol"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named_before_the_search(folder, why, tmp_path):
    tmp_path.joinpath("file").touch()
    tmp_path.joinpath("broken").symlink_to("nowhere")
    for command in (check_checkpoints, make_checkpoints):
        with pytest.raises(UsageError, match=f"checkpoints: the folder '.*' cannot be used: {why}"):
            command(folder.format(tmp_path))


def test_a_url_whose_package_is_not_installed_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(UsageError, match="'s3://bucket/x' cannot be used: Install s3fs to access S3"):
        check_checkpoints("s3://bucket/x")


def test_a_check_of_the_checkpoints_makes_no_folder(tmp_path):
    check_checkpoints(str(tmp_path / "a" / "b"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("folder", ["", "  "])
def test_a_folder_without_a_name_is_refused(folder):
    with pytest.raises(UsageError, match="the name of the folder is empty"):
        make_checkpoints(folder)


def test_a_folder_that_only_others_may_write_to_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(disk.os, "access", lambda place, mode: False)  # root may write everywhere
    with pytest.raises(UsageError, match="no file can be written to /"):
        make_checkpoints(str(tmp_path))


def test_folders_are_made_and_a_full_disk_is_left_to_the_search(tmp_path, monkeypatch):
    make_checkpoints(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    for none in (None, "memory://bucket/x", "simplecache::memory://x"):
        make_checkpoints(none)

    def full(*arguments, **options):
        raise OSError(disk.errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    make_checkpoints(str(tmp_path / "c"))


@NEEDS_PROC
def test_a_file_system_without_a_size_is_not_full():
    assert free_bytes(Path("/proc")) > 1000 * RESERVE
