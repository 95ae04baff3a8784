"""The texts that every machine has: source files of the Python standard library.

- `embedded`, which a task reads without `data`: 280 files of one fixed version of Python. They come with this package,
  so they are the same on every machine. `scripts/make_corpus.py` made them; NOTICE and python_license.txt have their
  licence.
- `standard_library`: all source files of the Python that runs the search. The hash of the data, which a study stores,
  identifies them.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from nas.tasks.own import TaskProblem

EMBEDDED, INSTALLED = "embedded", "standard_library"
NAMES = (EMBEDDED, INSTALLED)  # in place of a pattern in `data`

PACKED = Path(__file__).with_name("python_sources.xz")
# Of the files of the embedded corpus, one after the other.
SHA256 = "81fcd30b6becedb84520a354e44b0d102bb22a876ef75fe07b1e81662cb5b259"

# Left out: folders that an installation may lack or has added, and tables that do not read like a program.
LEFT_OUT = {
    "__pycache__", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages",
    "test", "tests", "tkinter", "turtledemo", "venv",
}  # fmt: skip


def files(name: str) -> list[tuple[str, bytes]]:
    """The names and the bytes of the files of a corpus, with newlines as \\n.

    Raises TaskProblem if Python was installed without its sources, or the embedded corpus is damaged.
    """
    if name == EMBEDDED:
        return unpack(PACKED.read_bytes())
    root = Path(sysconfig.get_paths()["stdlib"])
    found = list(sources(root))
    if not found:
        raise TaskProblem(
            f"There are no source files of Python below {root}. Name text files of your own: "
            "task: {language_model: {data: path/*.txt}}."
        )
    return found


def mark(name: str) -> list[str | int]:
    """The values that the text of a corpus depends on."""
    return [name, SHA256] if name == EMBEDDED else [name, platform.python_version()]


def pack(found: Sequence[tuple[str, bytes]]) -> bytes:
    """The files as `unpack` reads them: a line of JSON with names and sizes, then all bytes, compressed."""
    index = json.dumps([[name, len(data)] for name, data in found]).encode()
    return lzma.compress(index + b"\n" + b"".join(data for _, data in found), preset=9 | lzma.PRESET_EXTREME)


def unpack(packed: bytes, sha256: str | None = None) -> list[tuple[str, bytes]]:
    """The names and the bytes of the packed files. Raises TaskProblem unless their SHA-256 is that of the corpus."""
    try:
        index, _, data = lzma.decompress(packed).partition(b"\n")
        found = hashlib.sha256(data).hexdigest()
    except lzma.LZMAError:
        found = "none, because it cannot be decompressed"
    if found != (sha256 or SHA256):
        raise TaskProblem(
            f"The embedded corpus {PACKED} is damaged: its SHA-256 must be {sha256 or SHA256}, but it is {found}. "
            "Install the package again."
        )
    files, start = [], 0
    for name, size in json.loads(index):
        files.append((name, data[start : start + size]))
        start += size
    return files


def sources(root: Path) -> Iterator[tuple[str, bytes]]:
    """The names and the bytes of the source files of the standard library below `root`, in the order of their paths."""
    found = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT and not name.startswith("config-")]
        found += [Path(folder, name) for name in files if name.endswith(".py") and not _generated(name)]
    for path in sorted(found, key=lambda path: path.relative_to(root).as_posix()):
        yield path.relative_to(root).as_posix(), path.read_bytes().replace(b"\r\n", b"\n")


def _generated(name: str) -> bool:
    """Whether a file is written when Python is built, so that it differs between machines."""
    return name.startswith("_sysconfigdata")
