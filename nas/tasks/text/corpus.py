"""The text that every machine has: the source files of the Python standard library.

They differ between versions of Python; the hash of the data, stored with a study, says which were used.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from nas.tasks.own import TaskProblem

SIZE = 2_000_000  # bytes

# Left out: folders that an installation may lack or has added, and tables that do not read like a program.
LEFT_OUT = {
    "__pycache__", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages",
    "test", "tests", "tkinter", "turtledemo", "venv",
}  # fmt: skip


def standard_library(size: int = SIZE) -> bytes:
    """The first `size` bytes of the standard library in the order of its paths, with newlines as \\n.

    Raises TaskProblem if Python was installed without its sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    parts, total = [], 0
    for path in _sources(root):
        parts.append(path.read_bytes().replace(b"\r\n", b"\n"))
        total += len(parts[-1])
        if total >= size:
            return b"".join(parts)[:size]
    raise TaskProblem(
        f"The embedded corpus needs {size} bytes of Python's source files below {root}, but finds {total}. "
        "Name text files of your own: task: {language_model: {data: path/*.txt}}."
    )


def _sources(root: Path) -> list[Path]:
    found = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT and not name.startswith("config-")]
        found += [Path(folder, name) for name in files if name.endswith(".py") and not _generated(name)]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _generated(name: str) -> bool:
    """Whether a file is written when Python is built, so that it differs between machines."""
    return name.startswith("_sysconfigdata")
