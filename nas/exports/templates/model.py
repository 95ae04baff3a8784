import builtins
import json
import linecache
import math
import pathlib
import sys
import types
from math import inf, nan  # noqa: F401  (ARCHITECTURE may hold them)
from typing import Any

import torch
from torch import nn

ARCHITECTURE: Any = {}
SOURCES: dict[str, str] = {}


def model(**fields: Any) -> nn.Module:
    """The model with new weights; `load_weights` gives it the trained ones.

    fields: of the outermost block, such as `vocabulary`, in place of those of ARCHITECTURE.
    """
    for name in SOURCES:
        _module(name)
    registry: Any = _module("searchspace.registry")
    registry._discover = lambda: None  # the blocks in use are registered
    ((kind, described),) = ARCHITECTURE.items()
    return registry.configure(_tree({kind: {**described, **fields}}), role="model").build()


def load_weights(model: nn.Module, path: str) -> nn.Module:
    """Load a .safetensors file into `model`, and return it in evaluation mode."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    dtypes = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    dtypes |= {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
    state = {}
    for name, about in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            start, end = (8 + size + place for place in about["data_offsets"])
            numbers = torch.frombuffer(bytearray(data[start:end]) or bytearray(8), dtype=dtypes[about["dtype"]])
            state[name] = numbers[: math.prod(about["shape"])].view(about["shape"])
    model.load_state_dict(state)
    return model.eval()


def _tree(value: Any) -> Any:
    """ARCHITECTURE, or a value in it, as a tree of blocks."""
    if isinstance(value, list):
        return tuple(map(_tree, value))
    if isinstance(value, dict):
        ((name, fields),) = value.items()
        return _module("searchspace.tree").Block(name, {key: _tree(each) for key, each in fields.items()})
    return value


def _module(name: str) -> types.ModuleType:
    """The module `name` of SOURCES. In `sys.modules` it is below this file, so that it meets no module of its name."""
    full = f"{__name__}.{name}"
    if full not in sys.modules:
        module = sys.modules[full] = types.ModuleType(full)
        text, file = SOURCES[name], f"<{name} in {__name__}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks and debuggers
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
        exec(compile(text, file, "exec"), module.__dict__)
    return sys.modules[full]


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """What `from NAME import ...` gives inside SOURCES: one of its modules, or a module of Python or torch."""
    if name.partition(".")[0] not in {each.partition(".")[0] for each in SOURCES}:
        return builtins.__import__(name, globals, locals, fromlist, level)
    inside = {each: _module(f"{name}.{each}") for each in fromlist or () if f"{name}.{each}" in SOURCES}
    while name not in SOURCES and "." in name:  # all parts of `kernels.dispatch` are one module here
        name = name.rpartition(".")[0]
    if name in SOURCES:
        return _module(name)
    if not inside:
        raise ImportError(f"{name} is not in SOURCES: plain PyTorch needs no kernel.")
    return types.SimpleNamespace(**inside)
