"""The places of the database and of the checkpoints are tried before there is a study."""

import errno
import os
import sys
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from sqlalchemy.engine import make_url

from nas.errors import StoreError, UsageError
from nas.upkeep.places import (
    check_checkpoints,
    check_storage,
    checkpoint_folder,
    forget,
    is_owned,
    make_checkpoints,
)


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("{}/file/x", "/.*/file is not a folder"),
        ("{}/file", "/.*/file is not a folder"),
        ("{}/broken/x", "/.*/broken is not a folder"),
        ("{}/" + "x" * 300, ".*File name too long"),
        ("{}/a\0b", "embedded null byte"),
        ("~no-such-user/x", "Could not determine home directory"),
        ("file://{}/file/x", "/.*/file is not a folder"),
        ("foo://x", "Protocol not known: foo"),
        ("https://127.0.0.1:1/x", ".*"),
        ("zip://x.zip", ".*"),
    ],
)
def test_a_folder_to_which_nothing_can_be_written_is_named_before_the_search(folder, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("file").touch()
    tmp_path.joinpath("broken").symlink_to("nowhere")
    with pytest.raises(UsageError, match=f"checkpoints: the folder '.*' cannot be used: {why}"):
        make_checkpoints(folder.format(tmp_path), "s", "s.db")


@pytest.mark.parametrize("folder", ["", "  "])
def test_a_folder_without_a_name_is_refused(folder):
    with pytest.raises(UsageError, match="the name of the folder is empty"):
        check_checkpoints(folder)


def test_a_file_that_can_be_no_database_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"The study database .* cannot be made: /.*/file is not a folder"):
        check_storage(str(tmp_path / "file" / "s.db"))


def test_a_protocol_that_is_unknown_or_whose_package_is_not_installed_is_named_by_a_plan(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for url, why in (("foo://x", "Protocol not known: foo"), ("simplecache::s3://x", "Install s3fs to access S3")):
        with pytest.raises(UsageError, match=f"cannot be used: {why}"):
            check_checkpoints(url)


def test_a_check_makes_nothing_and_a_folder_that_only_others_may_write_to_is_named(tmp_path, monkeypatch):
    check_checkpoints(str(tmp_path / "a" / "b"))
    assert check_storage(str(tmp_path / "a" / "s.db")) == tmp_path / "a" / "s.db" and not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # root may write everywhere
    with pytest.raises(UsageError, match="no file can be written to /"):
        check_checkpoints(str(tmp_path))


@pytest.mark.parametrize(
    "url", ["{}/a b/%20", "file://{}/a b/%20", "local://{}/a b/%20/", "simplecache::file://{}/a b/%20"]
)
def test_a_folder_of_this_machine_is_made(url, tmp_path):
    make_checkpoints(url.format(tmp_path), "s", "s.db")
    assert (tmp_path / "a b" / "%20").is_dir() and not (tmp_path / "a b" / " ").exists()
    assert checkpoint_folder(url.format(tmp_path)) == tmp_path / "a b" / "%20"


def test_a_place_elsewhere_has_no_folder_here():
    for none in (None, "memory://bucket/x", "simplecache::memory://x"):
        make_checkpoints(none, "s", "s.db")
        assert checkpoint_folder(none) is None


def test_a_full_disk_is_left_to_the_search(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalFileSystem, "pipe_file", full)
    make_checkpoints(str(tmp_path / "c"), "s", "s.db")


@pytest.mark.parametrize("folder", ["{}/runs", "memory://of-databases"])
def test_a_folder_belongs_to_the_database_that_used_it_first(folder, tmp_path):
    folder, first, second = folder.format(tmp_path), tmp_path / "first.db", tmp_path / "second.db"
    first.touch()
    for storage in (first, second):  # the second is a copy
        make_checkpoints(folder, "my study", str(storage))

    def owned(storage, study="my study"):
        return is_owned(folder, study, make_url(f"sqlite:///{storage}"))

    assert owned(first) and not owned(second) and owned(second, "another study")
    Path(tmp_path / "link.db").symlink_to(first)
    assert owned(tmp_path / "link.db")
    assert not is_owned(folder, "my study", make_url("postgresql://host/copy"))
    first.unlink()
    assert owned(second), "the first was moved or removed"
    forget(folder, "my study")
    make_checkpoints(folder, "my study", "postgresql://host/name")
    assert owned(first) and is_owned(folder, "my study", make_url("postgresql://alias/name"))
