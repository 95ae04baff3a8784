"""The files of the tuner that `benchmarks.fuzz` corrupts: a table, a lock file, and measurements in three formats."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.dispatch import table
from kernels.dispatch.registry import Choice, Problem
from nas.errors import UsageError
from tuner.device import fingerprint
from tuner.search import exchange
from tuner.search.backends import Nowhere
from tuner.search.folder import PACKED, Folder
from tuner.search.row import Row

_PROBLEM = Problem("softmax", "cpu", "float32", (("rows", 16), ("columns", 64)), (("gradients", False),))
_CHOICE = Choice.of("blocked", {"rows": 64})


def files() -> dict[str, tuple[bytes, Callable[[Path], Any]]]:
    """Each file with its reader, which raises UsageError if it is refused."""
    entries = [table.Entry(_PROBLEM, _CHOICE, 0.25, "8ce87d92dfab945f")]
    buckets = [table.Bucket(_CHOICE, (_PROBLEM,), 0.03, "8ce87d92dfab945f")]
    rows = [
        {"format": exchange.FORMAT},
        {"device": {"key": "6ac7", "kind": "cpu", "units": 2}},
        *(
            {
                "operation": "softmax",
                "problem": '{"device":"cpu","flags":[],"sizes":[["rows",16]]}',
                "dtype": "float32",
                "implementation": "torch",
                "configuration": "{}",
                "source": "8ce8",
                "milliseconds": 0.5,
                "low": 0.4,
                "high": 0.6,
                "samples": [0.4, 0.6],
                "failure": None,
                "message": None,
                "turns": None,
                "device": "6ac7",
            },
        )
        * 2,
    ]
    rows.append({**rows[-1], "resources": {"registers": 48, "spills": 0, "shared": 1024, "warps": 4}})  # fmt: skip
    lines = "\n".join(json.dumps(row) for row in rows).encode()
    return {
        "a table": (table.written(entries, buckets, threads=1).encode(), _read_table),
        "a lock file": (table.written(entries, buckets, miss="error").encode(), _read_table),
        "measurements": (lines, _read_measurements),
        "measurements, gzipped": (gzip.compress(lines, mtime=0), _read_gzipped),
        "measurements, packed": (_packed(), _read_packed),
    }


def _packed() -> bytes:
    """A packed file of one key."""
    device = fingerprint("cpu")
    row = Row(
        operation="softmax",
        problem='{"sizes":[["rows",16]]}',
        dtype="float32",
        implementation="torch",
        configuration="{}",
        source="8ce8",
        milliseconds=0.5,
        low=0.4,
        high=0.6,
        samples=(0.4, 0.6),
        resources={"registers": 48},
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        folder.add(device, [row, row])
        folder.pack("softmax", row.problem, device)
        (file,) = Path(place).glob("softmax/*-*")
        return file.read_bytes()


def _read_packed(path: Path) -> None:
    """Read a packed file. Damaged rows are left out, so any content is accepted."""
    folder = path.parent / "folder"
    (folder / "softmax").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / "softmax" / f"a-b{PACKED}")
    Folder(folder).rows("softmax")


def _read_table(path: Path) -> None:
    try:
        table.read(path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _read_measurements(path: Path) -> None:
    try:
        exchange.import_(Nowhere(), path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _read_gzipped(path: Path) -> None:
    _read_measurements(Path(shutil.copy(path, path.with_suffix(".jsonl.gz"))))
