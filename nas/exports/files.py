"""Writes the files of an export: each whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nas.errors import NasError, UsageError
from nas.exports.registry import make
from nas.exports.winner import Winner


def write(winner: Winner, path: Path, formats: Iterable[str] = ("yaml",)) -> list[Path]:
    """Write a trial in each of `formats` and return the paths of the files. Nothing is written if one format fails.

    Raises UsageError for an unknown format or an invalid path, NasError if a file cannot be made or written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it.")
    contents = {file: content for name in formats for file, content in make(name).files(winner, path).items()}
    for file, content in contents.items():
        write_whole(file, content)
    return list(contents)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it. Raises NasError if that fails; an older file is then kept."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise NasError(f"Could not write {path}: {error.strerror}.") from None
