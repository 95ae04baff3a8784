"""One Python file that needs torch only: the modules that a model uses, unchanged, and its architecture.

The file holds the text of each module and imports them from there (`templates/model.py`). `kernels.dispatch` is
replaced by `templates/dispatch.py`, in which every operation is plain PyTorch, so no kernel, table or custom operator
is part of it.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import pprint
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from searchspace.model.architecture import Architecture
from searchspace.registry import Configured
from searchspace.tree import Block, Value

OURS = ("searchspace", "kernels")
DISPATCH = "kernels.dispatch"
KERNELS = "_triton"  # the ending of modules that only kernels need
CONTRACT = "searchspace.contract"
WIDTH = 116


def bundled(architecture: Architecture, head: str = "") -> str:
    """One Python file that needs only torch, with `model()` and `load_weights(model, path)`.

    head: further lines of its docstring, such as the lineage.
    """
    sources = "".join(f"    {name!r}: {_quoted(text)},\n" for name, text in _sources(architecture).items())
    tree = pprint.pformat(_plain(architecture.root), width=WIDTH, sort_dicts=False)
    loader = _template("model").replace("ARCHITECTURE: Any = {}", f"ARCHITECTURE: Any = {tree}")
    loader = loader.replace("SOURCES: dict[str, str] = {}\n", f"SOURCES: dict[str, str] = {{\n{sources}}}\n")
    contract = f'\n\nContext, Streams = (getattr(_module("{CONTRACT}"), name) for name in ("Context", "Streams"))\n'
    return f"{_docstring(architecture, head)}\n{loader}{contract}"


def blocks_of(architecture: Architecture) -> list[Configured]:
    """Every block of `architecture`, outermost first."""
    return list(_configured(architecture.configured))


@cache
def architecture_model(architecture: Architecture) -> Any:
    """The module of `architecture` without initial weights: for the names of its parameters and its capabilities."""
    with _undrawn():
        return architecture.configured.build()


def _configured(value: Any) -> Iterator[Configured]:
    if isinstance(value, Configured):
        yield value
        for field in dataclasses.fields(value.config):
            yield from _configured(getattr(value.config, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _configured(each)


def _plain(value: Value) -> Any:
    """A tree without holes as plain data: {name: fields} for a block, a list for several values."""
    if isinstance(value, Block):
        return {value.name: {name: _plain(each) for name, each in value.fields.items()}}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def _sources(architecture: Architecture) -> dict[str, str]:
    """The text of each module that the model imports, by name, each after those that it imports."""
    found: dict[str, str] = {}
    own = {each.type.module.__module__ for each in blocks_of(architecture)}
    for name in (CONTRACT, *sorted(own)):
        _add(name, found, {*OURS, *(each.partition(".")[0] for each in own)})
    return found


def _add(name: str, found: dict[str, str], ours: set[str]) -> None:
    if name.startswith(DISPATCH):
        found[DISPATCH] = _template("dispatch")
    elif name not in found:
        text = found[name] = inspect.getsource(importlib.import_module(name))
        for each in _imports(text):
            if each.partition(".")[0] in ours and not each.endswith(KERNELS):
                _add(each, found, ours)
        found[name] = found.pop(name)  # behind them


@cache
def _imports(text: str) -> tuple[str, ...]:
    """The names of the modules that a text imports, also inside functions, but not those for type checkers."""
    waiting: list[ast.AST] = [ast.parse(text)]
    names: list[str] = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            inner = [f"{module}.{each.name}" for each in node.names if _is_module(f"{module}.{each.name}")]
            names += inner or [module]
        else:
            waiting += ast.iter_child_nodes(node)
    return tuple(names)


def _is_module(name: str) -> bool:
    if name.partition(".")[0] not in OURS:
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what stands before the last dot is no package
        return False


def _quoted(text: str) -> str:
    return repr(text) if "'''" in text else f"r'''{text}'''"


def _template(name: str) -> str:
    return inspect.getsource(importlib.import_module(f"nas.exports.templates.{name}"))


def _docstring(architecture: Architecture, head: str) -> str:
    streams = architecture.root.name == "decoder" and not architecture_model(architecture).cannot_stream
    used = sorted({each.type.name for each in blocks_of(architecture)} - {architecture.root.name})
    calls = {"decoder": "logits = net(tokens)  # [B, T] of int64", "encoder_decoder": "logits = net(source, target)"}
    lines = [
        f"A {architecture.root.name} of {', '.join(used)}.",
        "",
        '    net = load_weights(model(), "model.safetensors")',
        f"    {calls.get(architecture.root.name, 'out = net(inputs)')}",
        *(STREAMING if streams else ()),
        "",
        f"Architecture {architecture.hash}. Needs torch only. SOURCES has the modules of exactly the blocks in use.",
        *(("", *head.splitlines()) if head else ()),
    ]
    return '"""' + "\n".join(each.replace("\\", "\\\\").rstrip() for each in lines) + '\n"""\n'


STREAMING = (
    "",
    "It reads a sequence piece by piece with a state:",
    "",
    "    streams = Streams()",
    "    logits = net(first, Context(streams=streams))",
    "    logits = net(second, Context(streams=streams))",
)


@contextmanager
def _undrawn() -> Iterator[None]:
    """Inside, the functions of `torch.nn.init` leave parameters unchanged: nothing is written to their memory.

    On the device `meta`, PyTorch imports its compiler for the first operation, which takes 1.5 s of CPU.
    """
    with torch.random.fork_rng(devices=[]), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(function, "__module__", None) == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return function(*args, **given)
