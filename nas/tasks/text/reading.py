"""Text as numbers: files read in a fixed order, as bytes or as characters, with the hash of what was read."""

from __future__ import annotations

import glob
import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nas.tasks.own import TaskProblem
from nas.tasks.prepared import prepared
from nas.tasks.text import corpus
from nas.tasks.vocabulary import Bytes, Characters, Vocabulary


@dataclass(frozen=True)
class Text:
    """symbols: [N] of an unsigned type, below `size`. widths: [size], the UTF-8 bytes of each symbol. sha256: of the
    bytes of the text. characters: those that the symbols are, None for bytes."""

    symbols: np.ndarray
    widths: np.ndarray
    sha256: str
    characters: str | None = None

    @property
    def size(self) -> int:
        """How many symbols there are."""
        return len(self.widths)

    @property
    def vocabulary(self) -> Vocabulary:
        """Turns text into symbols and back."""
        return self.vocabulary_with(())

    def vocabulary_with(self, special: Sequence[str]) -> Vocabulary:
        """The vocabulary with `special` symbols after those of the text."""
        return Bytes(special) if self.characters is None else Characters(self.characters, special)


def read(patterns: Sequence[str] | None, level: str, cache: Path | None) -> Text:
    """The files of `patterns` (None: the embedded corpus) one after the other in the order of their paths.

    Raises TaskProblem if a pattern matches no file, or a file cannot be read or is not UTF-8.
    """
    files = None if patterns is None else _files(patterns)
    if cache is None:
        return _encode(_bytes(files), level, files)
    folder = prepared(
        cache, f"text2-{_key(files, level)}", lambda folder: _save(_encode(_bytes(files), level, files), folder)
    )
    return _open(folder)


def _files(patterns: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    for pattern in patterns:
        matches = [Path(match) for match in glob.glob(pattern, recursive=True)]  # noqa: PTH207 (Path.glob takes no absolute pattern)
        files = [path for path in matches if path.is_file()]
        if not files:
            hint = " It is a folder; name the files in it." if any(path.is_dir() for path in matches) else ""
            raise TaskProblem(f"data: no file matches {pattern!r} (from {Path.cwd()}).{hint}")
        found.update(files)
    return sorted(found)


def _bytes(files: list[Path] | None) -> bytes:
    if files is None:
        return corpus.standard_library()
    try:
        return b"".join(path.read_bytes() for path in files)
    except OSError as error:
        raise TaskProblem(f"data: {error.filename} cannot be read: {error.strerror}.") from error


def _encode(data: bytes, level: str, files: list[Path] | None) -> Text:
    sha256 = hashlib.sha256(data).hexdigest()
    if level == "bytes":
        return Text(np.frombuffer(data, np.uint8), np.ones(256, np.uint8), sha256)
    try:
        points = np.frombuffer(data.decode("utf-8").encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError as error:
        raise TaskProblem(
            f"data: {_place(files, error.start)} is not UTF-8 ({error.reason}). Convert it, or use level: bytes."
        ) from error
    alphabet, symbols = np.unique(points, return_inverse=True)
    widths = np.array([len(chr(point).encode()) for point in alphabet], np.uint8)
    characters = "".join(map(chr, alphabet))
    return Text(symbols.astype(np.uint16 if len(alphabet) <= 2**16 else np.uint32), widths, sha256, characters)


def _place(files: list[Path] | None, position: int) -> str:
    """'FILE, byte N' for a position in the joined data."""
    for path in files or []:
        size = path.stat().st_size
        if position < size:
            return f"{path}, byte {position},"
        position -= size
    return f"byte {position}"


def _key(files: list[Path] | None, level: str) -> str:
    """A hash of what the prepared data depends on: a file that changes gets another key."""
    if files is None:
        source: object = [platform.python_version(), corpus.SIZE]
    else:
        source = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps([level, source]).encode()).hexdigest()[:16]


def _save(text: Text, folder: Path) -> None:
    np.save(folder / "symbols.npy", text.symbols)
    np.save(folder / "widths.npy", text.widths)
    (folder / "sha256").write_text(text.sha256)
    if text.characters is not None:
        (folder / "characters").write_bytes(text.characters.encode("utf-8"))  # no newline of it may be translated


def _open(folder: Path) -> Text:
    symbols = np.load(folder / "symbols.npy", mmap_mode="r")
    alphabet = folder / "characters"
    characters = alphabet.read_bytes().decode("utf-8") if alphabet.exists() else None
    return Text(symbols, np.load(folder / "widths.npy"), (folder / "sha256").read_text(), characters)
