"""A hash of the code that runs when a model does, and of what times it: latencies of other code are not used.

It changes when a computation changes. It does not change with comments, docstrings, imports, the messages of errors, or
the file that a function is in. Kernels are covered by more than this hash: every latency names the implementations that
ran, with a hash of their own (`nas.latency.served`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernels.dispatch import sources

RUNS = (
    "kernels",
    "searchspace.primitives",
    "searchspace.combinators",
    "searchspace.backbones",
    "searchspace.contract",
    "searchspace.sharing",
    "nas.latency.gauge",
    "nas.latency.turns",
    "nas.latency.chain",
    "nas.latency.bench",
    "nas.latency.runs",
    "nas.latency.measured",
    "nas.latency.optimiser",
    "tuner.measure.core",
)


@cache
def code() -> str:
    """The hash, twelve hexadecimal digits."""
    return hash_of(path.read_text(encoding="utf-8") for module in RUNS for path in _files(module))


def hash_of(texts: Iterable[str]) -> str:
    """The hash of the statements of some source files, which may be in any order and in any of the files."""
    statements = sorted(statement for text in texts for statement in sources.code(text).splitlines())
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:12]


def _files(module: str) -> Iterator[Path]:
    found = find_spec(module)
    assert found is not None and found.origin is not None, module
    origin = Path(found.origin)
    yield from origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]
