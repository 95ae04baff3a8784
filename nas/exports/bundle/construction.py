"""The file of one architecture: its code, its configuration as an expression, and how its weights are loaded."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from nas.exports.bundle.modules import Key, Modules
from nas.exports.bundle.reach import reached
from nas.exports.bundle.writing import written
from searchspace.contract import Capabilities
from searchspace.model.architecture import Architecture
from searchspace.registry import Configured

CONFIGURED: Key = ("searchspace.registry", "Configured")
SHARING: Key = ("searchspace.sharing", "one_model")
CONTEXT: Key = ("searchspace.contract", "Context")
STREAMS: Key = ("searchspace.contract", "Streams")
OF_STREAMS = {"reorder", "detach", "nbytes"}  # methods that a user of the file needs
WIDTH = 116
CONFIGURED_CODE = '''
@dataclass(frozen=True)
class Configured:
    """A block's class with its configuration."""

    module: Any
    config: Any

    def build(self) -> nn.Module:
        """The module, with new weights."""
        return self.module(self.config)
'''
CANNOT_STREAM = '''
def cannot_stream(blocks: Any) -> list[str]:
    """The names of the blocks that cannot read their input in pieces."""
    return {names!r}
'''
HANDED_OVER = '''
def handed_over(encoder: Any, decoder: Any) -> int:
    """The number of blocks of the decoder that start from a state of the encoder."""
    return {count}
'''
WIDENING = '''
def _widening(block: Any) -> int:
    """How many times wider the output of the last block is."""
    return {times}
'''
POINTWISE = '''
def pointwise(block: Any) -> bool:
    """Whether the block, with all blocks inside it, computes each position independently."""
    return all(below.module.__name__ in {names!r} for below in configured_below(block))
'''
BUILDING = '''def model() -> nn.Module:
    """The model with new weights; `load_weights` gives it the trained ones."""
{build}
'''
LOADING = '''
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
'''


def bundled(
    architecture: Architecture,
    head: str = "",
    *,
    always_streams: bool = False,
    forms: Mapping[Key, str] | None = None,
) -> str:
    """One Python file that needs only torch, with `model()` and `load_weights(model, path)`.

    head: further lines of its docstring, such as the lineage. always_streams: include `Streams` even if the model
    cannot use it. forms: texts that replace definitions.
    """
    root = architecture.configured
    modules = Modules(_own(root), {**_replaced(architecture), **(forms or {})})
    made = architecture_model(architecture)
    streams = not getattr(made, "cannot_stream", ["an encoder"])
    roots = {CONFIGURED, CONTEXT, *(key for each in _configured(root) for key in _keys(each))}
    roots |= {STREAMS} if streams or always_streams else set()
    found = reached(modules, roots, OF_STREAMS if streams else set())
    if any(module == SHARING[0] for module, _ in found.definitions):
        found = reached(modules, roots | {SHARING}, OF_STREAMS if streams else set())
    for name in ("Any", "nn", "torch"):
        _outside(found, name)
    code, names = written(modules, found)
    shares = SHARING in found.definitions
    build = (
        f"    with {names[SHARING]}():\n        return CONFIGURATION.build()"
        if shares
        else ("    return CONFIGURATION.build()")
    )
    configuration = _expression(root, names, len("CONFIGURATION = "), 0)
    parts = [
        _docstring(architecture, head, streams=streams),
        "from __future__ import annotations\n",
        _with_imports(code, ("json", "math", "pathlib")),
        f"CONFIGURATION = {configuration}\n\n",
        BUILDING.format(build=build),
        LOADING,
    ]
    return "\n".join(parts)


def blocks_of(architecture: Architecture) -> list[Configured]:
    """Every block of `architecture`, outermost first."""
    return list(_configured(architecture.configured))


@cache
def architecture_model(architecture: Architecture) -> Any:
    """The module of `architecture` without initial weights."""
    from nas.exports.bundle.undrawn import undrawn

    with undrawn():
        return architecture.configured.build()


def _outside(found: Any, name: str) -> None:
    from nas.exports.bundle.modules import Import

    known = {"Any": Import("typing", "Any", "Any"), "nn": Import("torch", "nn", "nn")}
    found.imports.add(known.get(name, Import(name, None, name)))
    found.imports.add(Import("dataclasses", "dataclass", "dataclass"))


def _with_imports(code: str, names: tuple[str, ...]) -> str:
    """`code` with further imports of the standard library."""
    head, gap, rest = code.partition("\n\n")
    lines = {*head.splitlines(), *(f"import {name}" for name in names)}
    plain = sorted(each for each in lines if each.startswith("import "))
    return "\n".join([*plain, *(each for each in head.splitlines() if not each.startswith("import "))]) + gap + rest


def _docstring(architecture: Architecture, head: str, *, streams: bool) -> str:
    used = sorted({each.type.name for each in _configured(architecture.configured)})
    lines = [
        f'"""A {architecture.root.name} of {", ".join(name for name in used if name != architecture.root.name)}.',
        "",
        '    net = load_weights(model(), "model.safetensors")',
        "    logits = net(tokens)  # tokens: [B, T] of int64"
        if architecture.root.name == "decoder"
        else (
            "    out = net(source, target)" if architecture.root.name == "encoder_decoder" else "    out = net(inputs)"
        ),
    ]
    if streams and architecture.root.name == "decoder":
        lines += [
            "",
            "It reads a sequence piece by piece with a state:",
            "",
            "    streams = Streams()",
            "    logits = net(first, Context(streams=streams))",
            "    logits = net(second, Context(streams=streams))",
        ]
    lines += ["", f"Architecture {architecture.hash}. Needs torch only."]
    if head:
        lines += ["", *head.splitlines()]
    return "\n".join(each.replace("\\", "\\\\").rstrip() for each in lines) + '\n"""\n'


def _configured(value: Any) -> Iterator[Configured]:
    """Every block in `value`, outermost first."""
    if isinstance(value, Configured):
        yield value
        for field in dataclasses.fields(value.config):
            yield from _configured(getattr(value.config, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from _configured(each)


def _keys(block: Configured) -> Iterator[Key]:
    for each in (block.type.module, block.type.config):
        yield each.__module__, each.__qualname__


def _own(root: Configured) -> tuple[str, ...]:
    """The modules of the user's own blocks."""
    from nas.exports.bundle.modules import OURS

    found = {each.type.module.__module__ for each in _configured(root)}
    return tuple(sorted(name for name in found if name.partition(".")[0] not in OURS))


def _replaced(architecture: Architecture) -> Mapping[Key, str]:
    """Replacements for functions that use the registry: for one architecture their results are known."""
    made, config = architecture_model(architecture), architecture.configured.config
    times = config.width_after // config.width if hasattr(config, "width_after") else 1
    kinds = {each.type.module for each in _configured(architecture.configured)}
    pointwise = sorted(each.__name__ for each in kinds if getattr(each, "capabilities", Capabilities()).pointwise)
    return {
        ("searchspace.combinators.skipping", "pointwise"): POINTWISE.format(names=pointwise),
        ("searchspace.backbones.decoder", "_widening"): WIDENING.format(times=times),
        CONFIGURED: CONFIGURED_CODE,
        ("searchspace.backbones.entry", "cannot_stream"): CANNOT_STREAM.format(
            names=list(getattr(made, "cannot_stream", []))
        ),
        ("searchspace.backbones.handover", "handed_over"): HANDED_OVER.format(count=getattr(made, "started", 0)),
    }


def _expression(value: Any, names: Mapping[Key, str], start: int, indent: int) -> str:
    """`value` as an expression that stands at column `start` of a line with `indent` spaces."""
    if isinstance(value, Configured):
        module, config = (names[key] for key in _keys(value))
        fields = [(each.name, getattr(value.config, each.name)) for each in dataclasses.fields(value.config)]
        short = ", ".join(f"{name}={_expression(each, names, 0, 0)}" for name, each in fields)
        text = f"{names[CONFIGURED]}({module}, {config}({short}))"
        if "\n" not in text and start + len(text) <= WIDTH:
            return text
        inner = indent + 8
        lines = [
            f"{' ' * inner}{name}={_expression(each, names, inner + len(name) + 1, inner)},\n" for name, each in fields
        ]
        space = " " * indent
        return (
            f"{names[CONFIGURED]}(\n{space}    {module},\n{space}    {config}(\n{''.join(lines)}{space}    ),\n{space})"
        )
    if isinstance(value, tuple):
        if period := _period(value):
            part = _expression(value[:period], names, start, indent)
            return f"{part} * {len(value) // period}"
        text = f"({', '.join(_expression(each, names, 0, 0) for each in value)}{',' if len(value) == 1 else ''})"
        if "\n" not in text and start + len(text) <= WIDTH:
            return text
        inner = indent + 4
        lines = [f"{' ' * inner}{_expression(each, names, inner, inner)},\n" for each in value]
        return f"(\n{''.join(lines)}{' ' * indent})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return _quoted(value)


def _period(value: tuple[Any, ...]) -> int:
    """The length of the group of blocks that a tuple repeats; 0 if it does not repeat one."""
    if not value or not isinstance(value[0], Configured):
        return 0
    for period in range(1, len(value) // 2 + 1):
        if len(value) % period == 0 and value == value[:period] * (len(value) // period):
            return period
    return 0


def _quoted(value: Any) -> str:
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text
