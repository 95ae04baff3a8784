"""Writes the files of an export: each whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nas.exports.registry import make
from nas.exports.winner import Winner
from nas.files import check_writable, write_whole


def write(winner: Winner, path: Path, formats: Iterable[str] = ("yaml",)) -> list[Path]:
    """Write a trial in each of `formats` and return the paths of the files. Nothing is written if one format fails.

    Raises UsageError for an unknown format or an invalid path, NasError if a file cannot be made or written.
    """
    check_writable(path)
    contents = {file: content for name in formats for file, content in make(name).files(winner, path).items()}
    for file in contents:
        check_writable(file)
    for file, content in contents.items():
        write_whole(file, content)
    return list(contents)
