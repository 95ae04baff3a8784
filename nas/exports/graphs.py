"""Programs of torch.export for one model: the whole prompt, and one more symbol from a state.

The model is that of `nas.exports.bundle`, so it is plain PyTorch. Batch and length are dynamic. A state is a list of
tensors: what the blocks keep, in the order of their calls. B batch, T time, P positions read before, V vocabulary.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nas.errors import UsageError
from nas.exports.bundle.construction import blocks_of, bundled
from nas.exports.checking import example_inputs
from searchspace.model.architecture import Architecture

LOOP = "takes one step per position, and a graph has a fixed number of steps"
CHUNKS = "divides a sequence into chunks, and a graph has a fixed number of them"
CONTENT = "selects positions by content, so that sizes depend on the data"
POOLED = "changes the length of a sequence, with sizes that a graph cannot express"
CANNOT = {  # blocks that no graph with a dynamic length can express
    "gru": LOOP,
    "lstm": LOOP,
    "attending_gru": LOOP,
    "linear_attention": CHUNKS,
    "favor_attention": CHUNKS,
    "random_feature_attention": CHUNKS,
    "gated_random_feature_attention": CHUNKS,
    "sliding_window_attention": CHUNKS,
    "longformer_attention": CHUNKS,
    "bigbird_attention": CHUNKS,
    "sparse_attention": CHUNKS,
    "adaptive_span_attention": CHUNKS,
    "compressive_attention": CHUNKS,
    "long_short_attention": CHUNKS,
    "causal_long_short_attention": CHUNKS,
    "lsh_attention": CONTENT,
    "halting": CONTENT,
    "hourglass": POOLED,
}
TRACED = (3, 24)  # batch and length of the inputs of a trace
PAIR = {"k": "k_new", "v": "v_new"}  # new keys and values wait next to the others until there are many


@dataclass(frozen=True)
class Programs:
    """prompt: inputs -> logits and the state, if there is one. decode: a symbol [B, 1] and the state -> the same.

    decode is None if the model keeps no state that a graph can read; `why_no_decode` says why. states: the names.
    """

    prompt: torch.export.ExportedProgram
    decode: torch.export.ExportedProgram | None
    inputs: tuple[str, ...]
    states: tuple[str, ...] = ()
    why_no_decode: str = ""
    example: tuple[Tensor, ...] = ()
    example_state: tuple[Tensor, ...] = field(default=(), repr=False)
    modules: tuple[nn.Module, ...] = field(default=(), repr=False)


def check(architecture: Architecture) -> None:
    """Raises UsageError that names the blocks which no graph can express."""
    found = [name for name in dict.fromkeys(each.type.name for each in blocks_of(architecture)) if name in CANNOT]
    if found:
        reasons = "; ".join(f"{name} {CANNOT[name]}" for name in found)
        raise UsageError(
            f"The architecture cannot become a graph of operators: {reasons}. The formats python and huggingface can "
            "hold it."
        )


def programs(architecture: Architecture, weights: Mapping[str, Tensor]) -> Programs:
    """The programs with these weights. Raises UsageError that names a block which cannot be exported."""
    check(architecture)
    with _module(architecture) as module:
        net = module.model()
        net.load_state_dict(dict(weights))
        net.eval()
        inputs = example_inputs(architecture, TRACED[1], TRACED[0])
        names = _input_names(architecture)
        why = _why_no_state(architecture, net)
        if why:
            prompt: nn.Module = _Whole(net)
            return Programs(_exported(architecture, prompt, inputs, _dynamic(inputs)), None, names, (), why, inputs)
        prompt = _Prompt(net, module)
        with torch.no_grad():
            _, *state = prompt(*inputs)
        slots = prompt.layout
        made = _exported(architecture, prompt, inputs, _dynamic(inputs))
        step = _Step(net, module, slots)
        growing = [_grows(name) for name in _state_names(slots)]
        arguments = (inputs[0][:, :1].clone(), *state)
        shapes = ({0: torch.export.Dim.DYNAMIC}, *(_of_state(each) for each in growing))
        decode = _exported(architecture, step, arguments, (shapes,))
        states = tuple(_state_names(slots))
        return Programs(made, decode, names, states, "", inputs, tuple(state), (prompt, step))


def _input_names(architecture: Architecture) -> tuple[str, ...]:
    if architecture.root.name == "encoder_decoder":
        return "source", "target"
    return ("tokens",) if getattr(architecture.configured.config, "vocabulary", None) else ("features",)


def _why_no_state(architecture: Architecture, net: Any) -> str:
    if architecture.root.name != "decoder":
        return "only a decoder has a decode step here"
    if net.cannot_stream:
        return f"{', '.join(net.cannot_stream)} cannot read a sequence in pieces"
    kept = {"attention", "primer_attention", "t5_attention"}
    if not kept & {each.type.name for each in blocks_of(architecture)}:
        return "no block keeps the keys of all positions, which tell how many were read"
    return ""


@contextmanager
def _module(architecture: Architecture) -> Iterator[Any]:
    """The module of the one-file export."""
    name = f"exported_{architecture.short}"
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(bundled(architecture), f"{name}.py", "exec"), module.__dict__)
        yield module
    finally:
        sys.modules.pop(name, None)


class _Whole(nn.Module):
    """The whole input at once."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.net(*inputs)


class _Prompt(nn.Module):
    """tokens: [B, T] -> logits [B, T, V] and the state after them."""

    def __init__(self, net: nn.Module, module: Any) -> None:
        super().__init__()
        self.net, self.module = net, module
        self.layout: list[tuple[str, ...]] = []

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        streams = self.module.Streams()
        logits = self.net(tokens, self.module.Context(streams=streams))
        slots = [_joined(slot) for slot in streams.slots]
        self.layout = [tuple(slot) for slot in slots]
        return (logits, *(state for slot in slots for state in slot.values()))


class _Step(nn.Module):
    """token: [B, 1] and the state -> logits [B, 1, V] and the next state."""

    def __init__(self, net: nn.Module, module: Any, layout: list[tuple[str, ...]]) -> None:
        super().__init__()
        self.net, self.module, self.layout = net, module, layout

    def forward(self, token: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        streams, waiting = self.module.Streams(), list(states)
        streams.slots = [{name: waiting.pop(0) for name in slot} for slot in self.layout]
        streams.length = next(slot["k"].shape[2] for slot in streams.slots if "k" in slot)
        logits = self.net(token, self.module.Context(streams=streams))
        slots = [_joined(slot) for slot in streams.slots]
        return (logits, *(slot[name] for slot, names in zip(slots, self.layout) for name in names))


def _joined(slot: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A slot with its new keys and values behind the others."""
    found = {name: state for name, state in slot.items() if name not in PAIR.values()}
    for name, new in PAIR.items():
        if new in slot:
            found[name] = torch.cat([found[name], slot[new]], dim=2)
    return found


def _state_names(layout: list[tuple[str, ...]]) -> list[str]:
    return [f"state_{number}_{name}" for number, slot in enumerate(layout) for name in slot]


def _grows(name: str) -> bool:
    return name.rpartition("_")[2] in PAIR


def _of_state(grows: bool) -> dict[int, Any]:
    dynamic = torch.export.Dim.DYNAMIC
    return {0: dynamic, 2: dynamic} if grows else {0: dynamic}


def _dynamic(inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Batch and length of every input; the parameter of `_Whole.forward` is one tuple."""
    return tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in inputs)


def _exported(
    architecture: Architecture, net: nn.Module, inputs: tuple[Tensor, ...], shapes: tuple[Any, ...]
) -> torch.export.ExportedProgram:
    given = (shapes,) if isinstance(net, _Whole) else shapes
    if isinstance(net, _Step):
        given = (shapes[0][0], tuple(shapes[0][1:]))
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(net, inputs, dynamic_shapes=given, strict=False)
    except Exception as error:  # torch raises many kinds for a model that it cannot trace
        blocks = ", ".join(sorted({each.type.name for each in blocks_of(architecture)}))
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"The architecture cannot become a graph of operators (blocks: {blocks}): {reason}") from None
