"""A hash of what a Triton kernel computes: its code, the code of the functions it calls, and the constants it reads.

Comments, decorators and the position in the file are not part of it, so measurements stay valid if a kernel is moved or
gets more configurations. Triton's own functions are left out: its version is part of the device's fingerprint.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

OWN = ("triton", "torch")  # packages whose versions are in the fingerprint of a device


def function_of(kernel: Any) -> Callable[..., Any]:
    """The Python function under `triton.jit` and other decorators. Raises ValueError if there is none."""
    while not inspect.isfunction(kernel):
        if not hasattr(kernel, "fn"):
            raise ValueError(f"a kernel is a function under @triton.jit, but got {type(kernel).__name__}.")
        kernel = kernel.fn
    return kernel


@cache
def source(function: Callable[..., Any]) -> str:
    """The hash, sixteen hexadecimal digits; of the byte code if the source code cannot be read."""
    parts: list[str] = []
    _collect(function, parts, set())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _collect(function: Callable[..., Any], parts: list[str], seen: set[Any]) -> None:
    if function in seen:
        return
    seen.add(function)
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
    except (OSError, SyntaxError, ValueError, AssertionError):
        parts.append(f"{function.__qualname__} {function.__code__.co_code.hex()}")
        return
    tree.decorator_list = []
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    parts.append(ast.dump(tree))
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    used = {name for each in ast.walk(tree) if (name := _dotted(each))}
    for name in sorted(used):
        value = _value(name, known)
        if isinstance(getattr(value, "value", None), bool | int | float | str):  # a tl.constexpr
            value = value.value
        if isinstance(value, bool | int | float | str):
            parts.append(f"{name} = {value!r}")
        elif (called := _called(value)) is not None:
            _collect(called, parts, seen)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return None


def _value(name: str, known: dict[str, Any]) -> Any:
    first, *rest = name.split(".")
    value = known.get(first)
    for each in rest:
        value = getattr(value, each, None)
    return value


def _called(value: Any) -> Callable[..., Any] | None:
    """The function of another kernel; None for any other value, and for Triton's own functions."""
    if value is None or inspect.ismodule(value) or inspect.isclass(value):
        return None
    try:
        found = function_of(value)
    except ValueError:
        return None
    return None if (found.__module__ or "").partition(".")[0] in OWN else found
