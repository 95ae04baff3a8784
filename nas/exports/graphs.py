"""Programs of torch.export for one model: the whole prompt, and one more symbol from a state.

The model runs as plain PyTorch, with the definitions of `nas.exports.forms`. Batch and length are dynamic. A state is
a list of tensors: the states of the blocks, in the order of their calls. B batch, T time, P positions read before, V
vocabulary.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from kernels.dispatch import plain
from nas.errors import UsageError
from nas.exports import steps
from nas.exports.bundle import blocks_of
from nas.exports.checking import example_inputs
from nas.exports.forms import for_graphs
from nas.exports.steps import Prompt, Step, Whole
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from searchspace.registry import Configured

CHUNKS = "divides a sequence into chunks, and a graph has a fixed number of them"
CONTENT = "selects positions by content, so that sizes depend on the data"
ZEROS = "starts with a memory of zeros, which a mask cannot give to the first segment alone"
POOLED = "changes the length of a sequence, with sizes that a graph cannot express"
CANNOT = {  # blocks that no graph with a dynamic length can express
    "bigbird_attention": CHUNKS,
    "compressive_attention": CHUNKS,
    "causal_long_short_attention": CHUNKS,
    "relative_attention": ZEROS,
    "lsh_attention": CONTENT,
    "hourglass": POOLED,
}
WINDOWED = {  # blocks that keep a number of positions which changes until it is reached
    "sliding_window_attention",
    "sparse_attention",
    "adaptive_span_attention",
    "relative_attention",
    "linformer_attention",
    "nadaraya_watson",
}
TRACED = (3, 24)  # batch and length of the inputs of a trace
LENGTHS = (7, 37, 509)  # at which a program is compared with the model; no trace can be special for all of them
TOLERANCE = 1e-4  # of the largest output


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
    modules: tuple[nn.Module, ...] = field(default=(), repr=False)


def check(architecture: Architecture) -> None:
    """Raise UsageError if a graph cannot express a block; the message names all such blocks."""
    found = list(dict.fromkeys(each.type.name for each in blocks_of(architecture) if _cannot_be_traced(each)))
    if found:
        reasons = "; ".join(f"{name} {CANNOT[name]}" for name in found)
        raise UsageError(
            f"The architecture cannot become a graph of operators: {reasons}. The formats python and huggingface can "
            "hold it."
        )


def _cannot_be_traced(block: Configured) -> bool:
    if block.type.name == "relative_attention":
        return block.config.segment is not None and block.config.zeros > 0
    return block.type.name in CANNOT


def programs(architecture: Architecture, weights: Mapping[str, Tensor]) -> Programs:
    """The programs with these weights. Raises UsageError, with the names of blocks, if they cannot be exported."""
    check(architecture)
    with warnings.catch_warnings(), plain(), for_graphs(), _without_cache():
        warnings.simplefilter("ignore")  # torch warns of its own code
        try:
            return _programs(architecture, weights)
        except UsageError:
            # A second trace, in which a size of one is no special case. It comes second, because it may exclude one.
            with torch.fx.experimental._config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
                return _programs(architecture, weights)


def _programs(architecture: Architecture, weights: Mapping[str, Tensor]) -> Programs:
    net = build(architecture)
    net.load_state_dict(dict(weights))
    net.eval()
    why = _why_no_state(architecture, net)
    if not why:
        try:
            made = _with_state(architecture, net)
            _compare(architecture, net, made)
            return made
        except UsageError as error:
            why = f"one more symbol cannot become a graph: {error}"
    inputs = example_inputs(architecture, TRACED[1], TRACED[0])
    prompt = _exported(architecture, Whole(net), inputs, _dynamic(inputs))
    made = Programs(prompt, None, _input_names(architecture), (), why, inputs)
    _compare(architecture, net, made)
    return made


def _with_state(architecture: Architecture, net: nn.Module) -> Programs:
    """The prompt with its state as an output, and the decode step."""
    inputs, pair = example_inputs(architecture, TRACED[1], TRACED[0]), architecture.root.name == "encoder_decoder"
    prompt = Prompt(net)
    with torch.no_grad():
        _, *state = prompt(*inputs)
    layout = prompt.layout
    made = _exported(architecture, prompt, inputs, _dynamic(inputs))
    step, states = Step(net, layout, pair=pair), tuple(steps.names(layout, pair=pair))
    arguments = (inputs[-1][:, :1].clone(), *state)
    decode = _exported(
        architecture, step, arguments, ({0: torch.export.Dim.DYNAMIC}, tuple(steps.sizes(layout, pair=pair)))
    )
    return Programs(made, decode, _input_names(architecture), states, "", inputs, (prompt, step))


def _compare(architecture: Architecture, net: nn.Module, made: Programs) -> None:
    """Raise UsageError if the program is right only for some lengths, because a block has a special case for them.

    ONNX Runtime would give wrong numbers for other lengths without an error.
    """
    call = made.prompt.module()
    for length in LENGTHS:
        inputs = example_inputs(architecture, length)
        with torch.no_grad():
            try:
                expected = net(*inputs)
            except (ValueError, IndexError, RuntimeError):  # longer than the model can read
                continue
            try:
                found = call(*inputs)
            except (AssertionError, RuntimeError) as error:
                raise _cannot(architecture, f"it does not hold for {length} positions ({_short(error)})") from None
        found = found[0] if isinstance(found, tuple | list) else found
        if not float((found - expected).abs().max()) <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise _cannot(architecture, f"it differs for {length} positions")


def _cannot(architecture: Architecture, reason: str) -> UsageError:
    blocks = ", ".join(sorted({each.type.name for each in blocks_of(architecture)}))
    return UsageError(f"The architecture cannot become a graph of operators (blocks: {blocks}): {reason}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _input_names(architecture: Architecture) -> tuple[str, ...]:
    if architecture.root.name == "encoder_decoder":
        return "source", "target"
    return ("tokens",) if getattr(architecture.configured.config, "vocabulary", None) else ("features",)


def _why_no_state(architecture: Architecture, net: Any) -> str:
    if not hasattr(net, "cannot_stream"):
        return "an encoder reads its whole input at once"
    if net.cannot_stream:
        return f"{', '.join(net.cannot_stream)} cannot read a sequence in pieces"
    found = sorted(WINDOWED & {each.type.name for each in blocks_of(architecture)})
    return f"{', '.join(found)} keeps a number of positions that changes" if found else ""


def _without_cache() -> Any:
    """Do not cache the results of operations on fake tensors: with dynamic sizes an entry costs more than it saves.

    CPU of all programs with the cache and without it (AMD EPYC): five windowed attentions 5.4 and 3.2 s, a decoder with
    attention 1.2 and 0.9 s, one with an LSTM and linear attention 4.5 and 2.8 s. Only node names differ.
    """
    import torch._dynamo.config  # takes longer

    return torch._dynamo.config.patch(fake_tensor_cache_enabled=False)


def _dynamic(inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Batch and length of every input; the modules take them as one tuple."""
    return (tuple({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for _ in inputs),)


def _exported(
    architecture: Architecture, net: nn.Module, inputs: tuple[Tensor, ...], shapes: tuple[Any, ...]
) -> torch.export.ExportedProgram:
    try:
        with torch.no_grad():
            return torch.export.export(net, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch raises many kinds for a model that it cannot trace
        raise _cannot(architecture, _short(error)) from None
