"""A hash of the code that runs when a model does: latencies that were measured with other code are not used.

It changes when a computation changes. It does not change with comments, docstrings, imports, the messages of errors, or
the file that a function is in. Kernels are covered by more than this hash: every latency names the implementations that
ran, with a hash of their own (`nas.latency.served`).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

RUNS = (
    "kernels",
    "searchspace.primitives",
    "searchspace.combinators",
    "searchspace.backbones",
    "searchspace.contract",
    "searchspace.sharing",
)


@cache
def code() -> str:
    """The hash, twelve hexadecimal digits."""
    return hash_of(path.read_text(encoding="utf-8") for module in RUNS for path in _files(module))


def hash_of(texts: Iterable[str]) -> str:
    """The hash of some source files, in any order."""
    statements = sorted(_digest(each) for text in texts for each in ast.parse(text).body)
    return hashlib.sha256(b"".join(statements)).hexdigest()[:12]


def _files(module: str) -> Iterator[Path]:
    found = find_spec(module)
    assert found is not None and found.origin is not None, module
    origin = Path(found.origin)
    yield from origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]


def _digest(statement: ast.stmt) -> bytes:
    """Nothing for a statement that computes nothing: an import or a text alone."""
    parts: list[str] = []
    _collect(statement, parts)
    return hashlib.sha256(" ".join(parts).encode()).digest() if parts else b""


def _collect(node: ast.AST, parts: list[str]) -> None:
    """Append what `node` computes to `parts`."""
    if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
        return
    parts.append(f"({type(node).__name__}")
    if isinstance(node, ast.Assert):
        _collect(node.test, parts)
    elif not isinstance(node, ast.Raise):
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                _collect(value, parts)
            elif isinstance(value, list):
                parts.append(f"[{field}")
                for each in value:
                    _collect(each, parts) if isinstance(each, ast.AST) else parts.append(repr(each))
            elif value is not None and field != "kind":
                parts.append(repr(value))
    parts.append(")")


def _is_text(node: ast.AST) -> bool:
    """Whether it is a statement of a text alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
