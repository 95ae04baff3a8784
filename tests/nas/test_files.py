"""A file that a user names is written whole or not at all, and only over a regular file."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from nas.errors import NasError, UsageError
from nas.files import exists, is_file, is_folder, reaching, write_whole, writing


def test_a_file_is_replaced_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_older_file_stays_if_writing_is_interrupted(tmp_path, error):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"old")
    with pytest.raises(error), writing(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_name_is_no_link_that_others_made(tmp_path, monkeypatch):
    """In a folder that others may write to, they could link the name to a file of ours."""
    monkeypatch.setattr("nas.files.secrets.token_hex", lambda size: "1234")
    (victim := tmp_path / "victim").write_bytes(b"old")
    (link := tmp_path / f".a.yaml.{os.getpid()}-1234.part").symlink_to(victim)
    with pytest.raises(NasError, match="File exists"):
        write_whole(tmp_path / "a.yaml", b"new")
    assert victim.read_bytes() == b"old" and not (tmp_path / "a.yaml").exists()
    link.unlink(missing_ok=True)


def test_a_full_disk_keeps_the_older_file(tmp_path):
    """In a process that may write files of 1,000 bytes at most, which fails as a full disk does."""
    path = tmp_path / "a.yaml"
    path.write_bytes(b"old")
    code = f"""
import pathlib, signal
from nas.files import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write_whole(pathlib.Path({str(path)!r}), b"x" * 5000)
"""
    limited = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
    )
    assert f"Could not write {path}: File too large." in limited.stderr
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_a_link_or_over_a_device(tmp_path):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path, words in (
        (link, "is a symbolic link"),
        (pipe, "is not a regular file"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(UsageError, match=words):
            write_whole(path, b"new")
    assert target.read_bytes() == b"old"
    assert link.is_symlink()


def test_a_path_that_cannot_be_says_so(tmp_path):
    with pytest.raises(NasError, match="there is no folder"):
        write_whole(tmp_path / "missing" / "a", b"new")
    with pytest.raises(NasError, match="File name too long"):
        write_whole(tmp_path / ("x" * 300), b"new")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(-2, "Name or service not known"),
            r"ftp://x, cannot be used: \[Errno -2\] Name or service not known\.$",
        ),
        (RuntimeError("no route.\nTry again"), r"ftp://x, cannot be used: RuntimeError: no route\.$"),
        (TimeoutError(), r"ftp://x, cannot be used: TimeoutError\.$"),
        (UsageError("as it is"), "^as it is$"),
    ],
)
def test_a_place_that_cannot_be_reached_is_named_in_one_line(error, said):
    with pytest.raises(NasError, match=said), reaching("ftp://x"):
        raise error


@pytest.mark.parametrize("path", ["x" * 5000, "a/" * 5000, "\udcff", "a\0b", "gone"], ids=repr)
def test_at_a_path_that_cannot_be_there_is_nothing(path):
    assert not (is_file(Path(path)) or is_folder(Path(path)) or exists(Path(path)))
