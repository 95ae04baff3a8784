"""The place of the checkpoints is checked before there is a study, without a look at the network."""

import os
import sqlite3
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from nas.errors import StoreError, UsageError
from nas.upkeep import disk
from nas.upkeep.places import LONGEST, check_checkpoints, check_storage, checkpoint_folder, make_checkpoints

NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


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
        ("zip://x.zip", "zip:// is an archive"),
        ("zip://*::file:///tmp/z.zip", "zip:// is an archive"),
        ("tar://x", "tar:// is an archive"),
        ("reference://x", "fsspec needs more than this URL for it"),
        ("generic://x", "fsspec needs more than this URL for it"),
        ("jupyter://x", "fsspec needs more than this URL for it"),
        ("async_wrapper://x", "fsspec needs more than this URL for it"),
        ("hf://x", "a repository of hf:// has an owner and a name"),
        ("simplecache://x", "simplecache stands before another protocol, as in simplecache::s3://NAME"),
        ("memory://a::b", "its parts are joined by :: before the ://"),
        ("{}/a::b", "its path has ::"),
        ("simplecache::/x", "behind simplecache:: comes a URL. Write simplecache::file:///x"),
        ("data:x", "for fsspec it is not a folder but data to read. Write ./data:x"),
        ("reference::memory://x", "before its protocol only simplecache:: may stand, and only once"),
        (
            "filecache::memory://x",
            "through filecache:: fsspec cannot .* files of memory://. Write simplecache::memory://x",
        ),
        ("simplecache::simplecache::memory://x", "before its protocol only simplecache:: may stand, and only once"),
        ("memory://", "it names no place. Write one, such as memory://NAME"),
        ("simplecache::memory:///", "it names no place. Write one, such as memory://NAME"),
        ("file://", "it names no folder. Write one, such as file:///PATH"),
        ("file://localhost/tmp/x", "a path behind file:// has no host. Write file:///tmp/x"),
        ("file://{}/file/x", "/.*/file is not a folder"),
        ("file://~no-such-user/x", "Could not determine home directory"),
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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/dev/null", "it is a device, a pipe or a socket"),
        ("pipe", "it is a device, a pipe or a socket"),
        ("link", "it is a device, a pipe or a socket"),
        ("x" * 300, "File name too long"),
        (f"{'x' * 250}/{'x' * 250}/s.db", "its whole path has .* bytes, and SQLite opens at most 504"),
    ],
    ids=["device", "pipe", "link", "name", "path"],
)
def test_a_file_that_can_be_no_database_is_named(name, why, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    with pytest.raises(StoreError, match=f"The study database .* cannot be made: {why}"):
        check_storage(str(tmp_path / name))


def test_the_longest_path_that_is_accepted_is_one_that_sqlite_opens(tmp_path, monkeypatch):
    folder = tmp_path / ("x" * 200) / ("y" * 200)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for spare in (0, 1):
        file = Path("z" * (LONGEST - len(str(folder)) - 1 + spare))
        if spare:
            with pytest.raises(StoreError):
                check_storage(str(file))
            with pytest.raises(sqlite3.OperationalError):
                sqlite3.connect(file)
        else:
            assert check_storage(str(file)) == file
            sqlite3.connect(file).close()


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


@pytest.mark.parametrize(
    "url",
    ["file://{}/a b/%20", "local://{}/a b/%20/", "simplecache::file://{}/a b/%20", "filecache::file://{}/a b/%20"],
)
def test_a_url_of_this_machine_is_the_folder_that_it_names(url, tmp_path):
    make_checkpoints(url.format(tmp_path))
    assert (tmp_path / "a b" / "%20").is_dir() and not (tmp_path / "a b" / " ").exists()


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "simplecache::s3://bucket/x", "simplecache://::memory://x", "memory://x/"]
)
def test_a_url_of_another_place_has_no_folder_here(url, monkeypatch):
    monkeypatch.setitem(_registry, "s3", type("S3", (MemoryFileSystem,), {"protocol": "s3"}))
    make_checkpoints(url)
    assert checkpoint_folder(url) is None


def test_a_server_is_not_asked(monkeypatch):
    monkeypatch.setattr("socket.create_connection", None)
    check_checkpoints("ftp://no-such-host/x")


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    "folder",
    [
        "{}/runs/../runs/s.db",
        "{}/linked/s.db/x",
        "{}/link.db",
        "file://{}/runs/s.db",
        "file:///{}/runs/s.db",
        "simplecache::local://{}/runs/s.db/x",
    ]
    + ["{}/runs/s.db" + end for end in ("-wal", "-shm/x", "-journal")],
)
def test_no_spelling_of_the_study_database_is_a_folder(folder, exists, tmp_path):
    database = tmp_path / "runs" / "s.db"
    if exists:
        database.parent.mkdir()
        database.touch()
    (tmp_path / "linked").symlink_to("runs")
    (tmp_path / "link.db").symlink_to("runs/s.db")
    with pytest.raises(UsageError, match=r"/s\.db(-\w+)? is (the|a file of the) study database\. Name"):
        check_checkpoints(folder.format(tmp_path), database)
