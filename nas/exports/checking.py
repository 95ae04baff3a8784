"""The check of an export: each format is loaded from its files by its own tool, in a separate process.

Outputs and weights are compared with those of the model in this process. Parameters, FLOPs and the hash are compared
with the study; latencies too, if they were measured on this device.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nas.child import Child, Died
from nas.exports.native import native
from nas.exports.winner import Winner
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

OUTPUTS = 1e-4  # the largest difference of an output, relative to the largest output
LATENCY = 0.25  # the largest difference of a measured latency, relative to the study's
PREFIX = {"huggingface": "model.", "torch": "net."}  # of the names of our weights in a format
MODULES = {"yaml": "yaml", "safetensors": "yaml"}  # formats that one module checks together
LENGTH = 24  # positions of the inputs
ROWS = 16  # at most, to read as many symbols of the vocabulary as possible
SYMBOLS = 128  # of the text for the tokenizer: one byte each, if symbols are bytes
SECONDS = 600  # for one check


@dataclass(frozen=True)
class Checked:
    """The result for one format: its numbers, and what differs too much."""

    format: str
    numbers: Mapping[str, Any]
    wrong: tuple[str, ...] = field(default=())


def check(winner: Winner, folder: Path, formats: Sequence[str], *, latency: float = LATENCY) -> list[Checked]:
    """Load each of `formats` from `folder` and compare it. latency: the tolerance, a fraction."""
    model = build(winner.architecture)
    model.load_state_dict(dict(winner.weights()))
    symbols = getattr(winner.architecture.configured.config, "vocabulary", None) or 0
    inputs = example_inputs(winner.architecture, batch=max(2, min(ROWS, -(-symbols // LENGTH))))
    with torch.inference_mode():
        outputs = model.eval()(*inputs)
    names = list(dict.fromkeys(MODULES.get(each, each) for each in formats))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        text = winner.vocabulary.decode(example_symbols(winner)) if winner.vocabulary is not None else ""
        torch.save({"inputs": inputs, "outputs": outputs, "text": text}, place / "expected.pt")
        child = Child()
        try:
            results = child.call("nas.exports.checks:run", folder.absolute(), place, names, SECONDS)
        except Died as error:
            results = dict.fromkeys(names, str(error))
        finally:
            child.kill()
        scale = max(1.0, float(outputs.abs().max()))
        return [_found(winner, each, results[each], place, scale, latency) for each in names]


def example_inputs(architecture: Architecture, length: int = LENGTH, batch: int = 2) -> tuple[Tensor, ...]:
    """Inputs of a model, always the same: [B, T] of int64, or [B, T, F]; two for an encoder-decoder."""
    config, random = architecture.configured.config, torch.Generator().manual_seed(17)
    if getattr(config, "vocabulary", None) is None:
        return (torch.randn(batch, length, config.features, generator=random),)
    sizes = [config.vocabulary]
    if architecture.root.name == "encoder_decoder":
        sizes = [config.source_vocabulary or config.vocabulary, config.vocabulary]
    many = batch * length
    return tuple(torch.randperm(max(size, many), generator=random)[:many].view(batch, length) % size for size in sizes)


def example_symbols(winner: Winner) -> list[int]:
    """The first symbols of the vocabulary; none without a vocabulary."""
    return [] if winner.vocabulary is None else list(range(min(SYMBOLS, winner.vocabulary.plain)))


def _found(
    winner: Winner, name: str, result: dict[str, Any] | str, place: Path, scale: float, latency: float
) -> Checked:
    """What a check found, and the weights that it wrote into `place`."""
    if isinstance(result, str):
        return Checked(name, {}, (f"it cannot be loaded: {result}",))
    weights = place / f"{name}.pt"
    other = other_weights(winner, name, torch.load(weights)) if weights.is_file() else []
    return Checked(name, result, tuple(_wrong(winner, result, scale, other, latency)))


def _wrong(winner: Winner, found: Mapping[str, Any], scale: float, other: Sequence[str], latency: float) -> list[str]:
    costs, wrong = dict(winner.origin.get("costs") or {}), []
    if not found["difference"] <= OUTPUTS * scale:
        wrong.append(f"an output differs by {found['difference']:.3g}, more than {OUTPUTS:g} of the largest")
    if other:
        shown = ", ".join(other[:5]) + (" and more" if len(other) > 5 else "")
        wrong.append(f"weights differ: {shown}")
    if found.get("symbols", known := example_symbols(winner)) != known:
        wrong.append("the tokenizer gives other symbols for the first ones of the vocabulary")
    for name in ("parameters", "flops"):
        if name in found and name in costs and found[name] != costs[name]:
            wrong.append(f"{name} are {found[name]}, but {costs[name]} in the study")
    if found.get("hash", winner.architecture.hash) != winner.architecture.hash:
        wrong.append("the architecture has another hash")
    for name, both in dict(found.get("latency") or {}).items():
        if abs(both["now"] / both["then"] - 1) > latency:
            wrong.append(f"{name} is {both['now']:.3g} ms, but {both['then']:.3g} ms in the study")
    return wrong


def other_weights(winner: Winner, form: str, parts: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """The names of weights in the format `form` that differ from those of `winner`.

    parts: the tensors that were found. The first part must have all weights; others, such as a decode step, may lack
    some.
    """
    expected: Mapping[str, Tensor] = winner.weights()
    if form == "huggingface" and (known := native(winner, expected)) is not None:
        expected = known.state
    else:
        expected = {PREFIX.get(form, "") + name: value for name, value in expected.items()}
    lacking = [name for name in expected if name not in parts[0]]
    shared = ((name, part[name]) for part in parts for name in expected if name in part)
    return list(dict.fromkeys([*lacking, *(name for name, value in shared if not _same(expected[name], value))]))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.detach().double(), other.detach().double())
