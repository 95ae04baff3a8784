"""A hash of what a Triton kernel computes: its code as it was compiled, that of all it calls, and what they read.

The text in a file may be newer than the code that runs, because somebody saved it meanwhile. So the text counts that
Triton read when it decorated a kernel; of Triton's interpreter and of plain functions, the byte code counts. Comments,
docstrings and the position in the file are not part of the hash, so measurements stay valid if a kernel is moved or
gets more configurations. Libraries are left out: the versions of Triton and torch are part of a device's fingerprint.
"""

from __future__ import annotations

import ast
import enum
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import CodeType, ModuleType
from typing import Any

from kernels.dispatch import sources

LIBRARIES = {"triton", "torch", "numpy", *sys.stdlib_module_names}
JIT = ("debug", "noinline", "do_not_specialize", "do_not_specialize_on_alignment")  # options that change the kernel


def function_of(kernel: Any) -> Callable[..., Any]:
    """The Python function under `triton.jit` and other decorators. Raises ValueError if there is none."""
    function = _layers(kernel)[-1]
    if not inspect.isfunction(function):
        raise ValueError(f"a kernel is a function under @triton.jit, but got {type(kernel).__name__}.")
    return function


def source(kernel: Any, given: Iterable[Any] = (), arguments: Iterable[Any] = ()) -> str:
    """The hash, sixteen hexadecimal digits.

    kernel: a function, or a kernel with its decorators; options of `triton.jit` and heuristics then count as well.
    given: functions that configurations give to it, and hooks, in any order. arguments: functions that a call gives to
    it, in the order of its parameters.
    """
    found = _hash(_Parts().of(kernel))
    others = [*sorted({_hash(_Parts().of(each)) for each in given}), *(_hash(_Parts().of(each)) for each in arguments)]
    return _hash([found, *others]) if others else found


def functions(values: Iterable[Any]) -> list[Any]:
    """Those of the values that are functions, or kernels, also inside tuples."""
    found: list[Any] = []
    for each in values:
        if isinstance(each, tuple | list):
            found += functions(each)
        elif callable(each) and not isinstance(each, type):
            found.append(each)
    return found


def tree_of(kernel: Any) -> ast.FunctionDef | None:
    """The syntax tree of a kernel; None if its source code cannot be read."""
    layers = _layers(kernel)
    try:
        text = next((each.src for each in layers if hasattr(each, "src")), None)
        (tree,) = ast.parse(text or textwrap.dedent(inspect.getsource(layers[-1]))).body
    except (OSError, SyntaxError, ValueError, TypeError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def _layers(kernel: Any) -> list[Any]:
    """A kernel, what each of its decorators decorates, and last the function, or an object that can be called."""
    found = [kernel]
    while not inspect.isfunction(found[-1]):
        inner = getattr(found[-1], "fn", None) or getattr(found[-1], "__wrapped__", None)  # such as of functools.cache
        if inner is None:
            break
        found.append(inner)
    return found


def _hash(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class _Parts:
    """What a kernel computes, as texts in a fixed order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.seen: set[int] = set()

    def of(self, called: Any) -> list[str]:
        """Add a kernel with its decorators, or anything else that can be called, and what it calls -> all texts."""
        layers = _layers(called)
        if id(layers[-1]) in self.seen:
            return self.texts
        self.seen.add(id(layers[-1]))
        for each in layers[:-1]:
            given = getattr(each, "kwargs", None) or {}  # of the interpreter's kernels
            options = {name: getattr(each, name, None) or given.get(name) for name in JIT}
            self.texts += [f"{name} {value}" for name, value in options.items() if value]
            for name, value in sorted((getattr(each, "values", None) or {}).items()):
                self.texts.append(f"heuristic {name}")
                self.of(value)
        function = layers[-1]
        if inspect.isfunction(function):
            self.texts.append(_compiled(layers))
            self._add_read(function)
        elif isinstance(function, partial):
            self.of(function.func)
            self._add("values", [*function.args, function.keywords], set())
        elif inspect.ismethod(function):
            self.of(function.__func__)
            self._add("self", vars(function.__self__) if hasattr(function.__self__, "__dict__") else None, set())
        elif inspect.isfunction(type(function).__call__):
            self.of(type(function).__call__)
            self._add("values", getattr(function, "__dict__", {}), set())
        else:  # of C
            self.texts.append(getattr(function, "__qualname__", str(type(function))))
        return self.texts

    def _add_read(self, function: Any) -> None:
        """What a function reads from around it: its closure, its defaults, and globals that it names."""
        names = _names(function.__code__)
        known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for name in sorted(names & known.keys()):
            self._add(name, known[name], names)
        self._add("defaults", [function.__defaults__, function.__kwdefaults__], names)

    def _add(self, name: str, value: Any, names: set[str]) -> None:
        """A value that a function calls `name`. names: all that the function names, such as attributes of a module."""
        if type(value).__name__ == "constexpr" or isinstance(value, enum.Enum):
            value = value.value
        if value is None or isinstance(value, bool | int | float | str | bytes) or type(value).__name__ == "dtype":
            self.texts.append(f"{name} = {value!s} {type(value).__name__}")
        elif isinstance(value, Mapping):
            self._add(name, list(value.items()), names)
        elif isinstance(value, tuple | list):
            self.texts.append(f"{name} has {len(value)}")
            for number, each in enumerate(value):
                self._add(f"{name}.{number}", each, names)
        elif _is_of_library(value):
            if not isinstance(value, ModuleType):
                self.texts.append(f"{name} = {_name_in_library(value)}")
        elif isinstance(value, ModuleType | type):
            for each in sorted(names & vars(value).keys()):
                self._add(f"{name}.{each}", vars(value)[each], names)
        elif callable(value):
            self.of(value)


def _compiled(layers: Sequence[Any]) -> str:
    """The code of the function that is the last layer, as Triton or Python compiled it."""
    jitted: Any = layers[-2] if len(layers) > 1 else None
    if hasattr(jitted, "src"):
        return sources.code(jitted.src)
    if hasattr(jitted, "rewrite"):  # of the interpreter, which reads the file again when a kernel first runs
        return _byte_code(jitted.rewrite())
    return _byte_code(layers[-1])


def _byte_code(function: Any) -> str:
    """The byte code of a function with its constants and names, without its docstring."""

    def described(code: CodeType, docstring: str | None) -> str:
        constants = [described(each, None) if inspect.iscode(each) else repr(each) for each in code.co_consts]
        if docstring is not None and constants and code.co_consts[0] == docstring:
            constants[0] = "None"
        return f"{code.co_code.hex()} {constants} {code.co_names}"

    return described(function.__code__, function.__doc__)


def _names(code: CodeType) -> set[str]:
    """All names in a function, and in the functions that it makes, but those of its own variables."""
    inner = [_names(each) for each in code.co_consts if inspect.iscode(each)]
    return {*code.co_names, *code.co_freevars}.union(*inner)


def _is_of_library(value: Any) -> bool:
    inner = value if isinstance(value, ModuleType) else _layers(value)[-1]
    module = value.__name__ if isinstance(value, ModuleType) else getattr(inner, "__module__", None) or "builtins"
    return not isinstance(inner, partial) and module.partition(".")[0] in LIBRARIES


def _name_in_library(value: Any) -> str:
    """What a function of a library is called, also if it has another name here. Triton's interpreter replaces those of
    `triton.language` by functions of one name."""
    from triton import language  # where Triton is not installed, nothing is hashed

    found = next((name for name, each in vars(language).items() if each is value), None)
    return found or str(getattr(_layers(value)[-1], "__qualname__", type(value).__qualname__))
