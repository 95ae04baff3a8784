"""Finds and writes the files that users name: completely or not at all, and only over regular files."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from nas.errors import NasError, Unreachable, UsageError


def is_file(path: Path) -> bool:
    """Whether this is a file; False too for a path that cannot be one, because it is too long."""
    return _answer(path.is_file)


def is_folder(path: Path) -> bool:
    """Whether this is a folder; False too for a path that is too long."""
    return _answer(path.is_dir)


def exists(path: Path) -> bool:
    """Whether there is something at this path; False too for a path that is too long."""
    return _answer(path.exists)


def _answer(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:
        return False


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, as `writing` does."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to. It has a temporary name until the block ends; an older file stays as it is until then.

    The content is on the disk before the name changes, so a full disk or a power cut costs the new file only. If the
    block raises, nothing is left of it. Raises UsageError if `path` is a symbolic link, a folder, a device or a pipe;
    NasError if the file cannot be written.
    """
    check_writable(path)
    part = path.with_name(f".{path.name[:200]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:  # never through a link of that name, which others may make in a shared folder
            yield file
            file.flush()
            os.fsync(file.fileno())
        _keep_mode(path, part)
        part.replace(path)
    except OSError as error:
        raise NasError(f"Could not write {path}: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raises UsageError if `path` is a symbolic link, a folder, a device or a pipe; NasError if it has no folder."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise NasError(f"Could not write {path}: there is no folder {path.parent}.") from None
        return
    except OSError as error:
        raise NasError(f"Could not write {path}: {error.strerror or error}.") from None
    if stat.S_ISLNK(kind):
        raise UsageError(f"{path} is a symbolic link: name the file that it stands for, or another one.")
    if stat.S_ISDIR(kind):
        raise UsageError(f"{path} is a folder: name a file in it.")
    if not stat.S_ISREG(kind):
        raise UsageError(f"{path} is not a regular file but a device, a pipe or a socket: name another file.")


def _keep_mode(older: Path, newer: Path) -> None:
    """Give the new file the permissions of the one that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        newer.chmod(stat.S_IMODE(older.stat().st_mode))


@contextlib.contextmanager
def reaching(folder: str) -> Iterator[None]:
    """Raise Unreachable if the block cannot use `folder`, which may be a URL: each kind raises errors of its own."""
    try:
        yield
    except (NasError, MemoryError):
        raise
    except Exception as error:
        raise Unreachable(f"The place of the checkpoints, {folder}, cannot be used: {reason(error)}.") from error


def reason(error: Exception) -> str:
    """The first line of an error, with its type unless the system or a wrong value is the reason."""
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    if first and isinstance(error, OSError | ValueError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
