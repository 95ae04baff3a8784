"""The hash of code: a measurement is valid only for the code that was measured.

The hash covers the computation. It leaves out comments, docstrings, import lines, the messages of exceptions, lists of
module names, how a block relates to its paper, and the descriptions in `Operation` and `Implementation`, such as the
values to choose from. So it stays the same if a file is moved, its text is rewritten, or a value is added.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

DESCRIBING = {"register", "Operation", "Implementation"}
TOLD = ("published",)  # keyword arguments that describe a block
LEFT_OUT = ("ctx", "kind", "type_comment")  # fields of the syntax tree that change nothing


@cache
def hash_of(*modules: str) -> str:
    """The hash of the code of some modules, and of all modules of packages among them, 16 digits.

    Their statements may be in any order and in any of the files. The modules are not imported, but their packages are.
    """
    texts = (path.read_text(encoding="utf-8") for module in modules for path in _files(module))
    statements = sorted(statement for text in texts for statement in code(text).splitlines())
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]


def _files(module: str) -> Iterator[Path]:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, module
    origin = Path(found.origin)
    yield from origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]


def code(text: str) -> str:
    """What a file computes, as a text that does not depend on the version of Python."""
    statements = ast.parse(text).body
    return "\n".join(_dumped(each) for each in statements if not (_without_effect(each) or _describes(each)))


def _describes(statement: ast.stmt) -> bool:
    """Whether a statement of a module describes implementations, or lists modules."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    if isinstance(statement, ast.Assign) and _lists_modules(statement.value):
        return True
    calls = (each.func for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in DESCRIBING for called in calls)


def _lists_modules(value: ast.expr) -> bool:
    """Whether a value is a tuple of names of our modules, or of such tuples."""
    if not isinstance(value, ast.Tuple):
        return False
    names = [each.value for each in value.elts if isinstance(each, ast.Constant)]
    rest = [each for each in value.elts if not isinstance(each, ast.Constant | ast.Starred)]
    return bool(names) and not rest and all(str(name).startswith("kernels.") for name in names)


def _without_effect(node: Any) -> bool:
    """Whether a node is an import or a string on its own."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _dumped(node: Any) -> str:
    if isinstance(node, list):
        return f"[{', '.join(_dumped(each) for each in node if not _without_effect(each))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    return f"{type(node).__name__}({', '.join(_fields(node))})"


def _fields(node: ast.AST) -> Iterator[str]:
    """The parts of a node, without empty fields, which only some versions of Python write."""
    for name, value in ast.iter_fields(node):
        if isinstance(node, ast.Call) and name == "keywords":
            value = [each for each in value if each.arg not in TOLD]
        if value is None or value == [] or name in LEFT_OUT:
            continue
        if isinstance(node, ast.Raise) and isinstance(value, ast.Call):
            value = value.func
        if isinstance(node, ast.Assert) and name == "msg":
            continue
        yield f"{name}={_dumped(value)}"
