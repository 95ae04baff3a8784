"""A hash of what a Triton kernel computes: its code, the code of the functions it calls, and the constants it reads.

Comments, decorators and the position in the file are not part of it, so measurements stay valid if a kernel is moved or
gets more configurations. Triton's own functions are left out: its version is part of the device's fingerprint.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

OWN = ("triton", "torch")  # packages whose versions are in the fingerprint of a device
JIT = ("debug", "noinline", "do_not_specialize", "do_not_specialize_on_alignment")  # options that change the kernel


def function_of(kernel: Any) -> Callable[..., Any]:
    """The Python function under `triton.jit` and other decorators. Raises ValueError if there is none."""
    while not inspect.isfunction(kernel):
        inner = getattr(kernel, "fn", None) or getattr(kernel, "__wrapped__", None)  # such as that of functools.cache
        if inner is None:
            raise ValueError(f"a kernel is a function under @triton.jit, but got {type(kernel).__name__}.")
        kernel = inner
    return kernel


def source(kernel: Any, given: Iterable[Any] = (), arguments: Iterable[Any] = ()) -> str:
    """The hash, sixteen hexadecimal digits; of the byte code if the source code cannot be read.

    kernel: a function, or a kernel with its decorators; options of `triton.jit` and heuristics then count as well.
    given: functions that configurations give to it, and hooks, in any order. arguments: functions that a call gives to
    it, in the order of its parameters.
    """
    found, others = _source_or_new(kernel), [*sorted({*map(_source_or_new, given)}), *map(_source_or_new, arguments)]
    return _hash([found, *others]) if others else found


def _source_or_new(kernel: Any) -> str:
    try:
        return _source(kernel)
    except TypeError:  # a decorator that cannot be hashed
        return _source.__wrapped__(kernel)


def functions(values: Iterable[Any]) -> list[Any]:
    """Those of the values that are functions, or kernels, also inside tuples."""
    found: list[Any] = []
    for each in values:
        if isinstance(each, tuple | list):
            found += functions(each)
        elif callable(each) and not isinstance(each, type):
            found.append(each)
    return found


@cache
def _source(kernel: Any) -> str:
    found = _Parts([], [], set())
    found.add(kernel)
    # What the hash did not cover in the past comes last, so that a kernel without any of it keeps its hash.
    return _hash(found.code + found.more)


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass
class _Parts:
    """code: of the functions, and their simple constants. more: everything else that changes the computation."""

    code: list[str]
    more: list[str]
    seen: set[Any]

    def add(self, kernel: Any) -> None:
        """A kernel with its decorators, or any other function, and what it calls."""
        try:
            function = function_of(kernel)
        except ValueError:  # an object that can be called
            self._add_around(kernel)
            return
        if function in self.seen:
            return
        self.seen.add(function)
        self._add_decorators(kernel)
        tree = tree_of(function)
        if tree is None:  # a lambda, for example
            self.code.append(code_and_closure(function))
            self._add_around(function)
            return
        self.code.append(ast.dump(tree))
        known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for name in sorted({name for each in ast.walk(tree) if (name := _dotted(each))}):
            self._add_value(name, _value(name, known))

    def _add_around(self, function: Any) -> None:
        """What a function that is known by its byte code reads, except for the plain values of `code_and_closure`."""
        for name, value in sorted(_around(function).items()):
            if not _is_plain(value):
                self._add_value(name, value)

    def _add_value(self, name: str, value: Any) -> None:
        if isinstance(getattr(value, "value", None), bool | int | float | str):  # a tl.constexpr
            value = value.value
        if isinstance(value, bool | int | float | str):
            self.code.append(f"{name} = {value!r}")
        elif (called := _called(value)) is not None:
            self.add(value if function_of(value) is called else called)
        elif text := self._described(name, value):
            self.more.append(f"{name} = {text}")

    def _described(self, name: str, value: Any) -> str:
        """A constant that is no number or text, or another name of one of Triton's functions; empty for the rest."""
        value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        if isinstance(value, dict):
            value = tuple(value.items())
        if isinstance(value, tuple | list):
            parts = []
            for number, each in enumerate(value):
                if _called(each) is not None:
                    self.add(each)
                plain = isinstance(each, bool | int | float | str | None)
                parts.append(repr(each) if plain else self._described(f"{name}.{number}", each))
            return f"({', '.join(parts)})"
        if type(value).__name__ == "dtype":
            return str(value)
        if inspect.isclass(value) and (value.__module__ or "").partition(".")[0] not in (*OWN, "builtins"):
            with suppress(OSError, TypeError, SyntaxError):
                return ast.dump(ast.parse(textwrap.dedent(inspect.getsource(value))))
        if "." not in name and (known := _name_in_triton(value)):
            return "" if known == name else f"triton.language.{known}"
        own = getattr(value, "__name__", None)
        is_alias = callable(value) and own and "." not in name and own != name and not inspect.ismodule(value)
        return f"{getattr(value, '__module__', '')}.{own}" if is_alias else ""

    def _add_decorators(self, kernel: Any) -> None:
        """Options of `triton.jit` that are not the default, and the functions of `triton.heuristics`."""
        while kernel is not None and not inspect.isfunction(kernel):
            given = getattr(kernel, "kwargs", None) or {}  # of the interpreter's kernels
            options = {name: getattr(kernel, name, None) or given.get(name) for name in JIT}
            chosen = {name: value for name, value in options.items() if value}
            if chosen:
                self.more.append(f"jit {sorted(chosen.items())}")
            for name, value in sorted((getattr(kernel, "values", None) or {}).items()):
                self.more.append(f"heuristic {name} {code_and_closure(value)}")
                self._add_around(value)
            kernel = getattr(kernel, "fn", None)


def _name_in_triton(value: Any) -> str | None:
    """The name of one of the functions of `triton.language`; the interpreter replaces them by functions of one name."""
    if not callable(value) or inspect.ismodule(value):
        return None
    from triton import language  # where Triton is not installed, nothing is hashed

    return next((name for name, each in vars(language).items() if each is value), None)


def tree_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """The function without decorators and docstring; None if its source code cannot be read."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
    except (OSError, SyntaxError, ValueError, AssertionError):
        return None
    tree.decorator_list = []
    if ast.get_docstring(tree) is not None:
        tree.body = tree.body[1:] or [ast.Pass()]
    return tree


def code_and_closure(function: Any) -> str:
    """What a plain Python function computes: its byte code, and the plain values around it."""
    return f"{_code(getattr(function, '__code__', None))} {_closure(function)}"


def _code(code: Any) -> str:
    """The byte code of a function with its constants and names."""
    if code is None:
        return ""
    constants = [_code(each) if inspect.iscode(each) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


def _closure(function: Any) -> list[str]:
    """The plain values that a function has from around it: its closure, its defaults, and globals that it names."""
    if not inspect.isfunction(function):
        return []
    return [f"{name}={value!r}" for name, value in sorted(_around(function).items()) if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _around(function: Any) -> dict[str, Any]:
    """What a function reads from around it, by name; of `functools.partial`, a method, or an object that can be called,
    the function in it, and what it holds."""
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        more = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
        return {**found.nonlocals, **found.globals, **more}
    if isinstance(function, partial):
        return {"called": function.func, "values": [*function.args, function.keywords]}
    if inspect.ismethod(function):
        return {"called": function.__func__}
    return {"called": type(function).__call__, "values": [getattr(function, "__dict__", {})]}


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return None


def _value(name: str, known: Mapping[str, Any]) -> Any:
    first, *rest = name.split(".")
    value = known.get(first)
    for each in rest:
        value = getattr(value, each, None)
    return value


def called_from(call: ast.Call, known: Mapping[str, Any]) -> Any:
    """The function that a call in the source code names; known: what the names mean. None if it is an expression."""
    name = _dotted(call.func)
    return name and _value(name, known)


def _called(value: Any) -> Callable[..., Any] | None:
    """The function of another kernel; None for any other value, and for Triton's own functions."""
    if value is None or inspect.ismodule(value) or inspect.isclass(value):
        return None
    try:
        found = function_of(value)
    except ValueError:
        return None
    return None if (found.__module__ or "").partition(".")[0] in OWN else found
