"""The check of an export: each format is loaded from its files by its own tool, in a separate process.

Outputs and weights are compared with those of the model in this process. Parameters, FLOPs and the hash are compared
with the study; latencies too, if they were measured on this device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nas.exports.weights import other_weights
from nas.exports.winner import Winner
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

OUTPUTS = 1e-4  # the largest difference of an output, relative to the largest output
LATENCY = 0.25  # the largest difference of a measured latency, relative to the study's
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
        for together in [names] if hasattr(os, "fork") else [[each] for each in names]:
            _run(folder, place, together)
        scale = max(1.0, float(outputs.abs().max()))
        return [_found(winner, each, place, scale, latency) for each in names]


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


def _run(folder: Path, place: Path, names: Sequence[str]) -> None:
    """Run the checks of `nas.exports.checks` in separate processes; they write their results into `place`."""
    script = Path(__file__).parent / "checks" / "__main__.py"
    command = [sys.executable, "-B", str(script), str(folder.absolute()), str(place), str(SECONDS), *names]
    with (place / "all.txt").open("w") as said:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=_environment(), check=False)


def _found(winner: Winner, name: str, place: Path, scale: float, latency: float) -> Checked:
    """The result that one check wrote into `place`."""
    written, weights = place / f"{name}.json", place / f"{name}.pt"
    if not written.is_file():
        texts = (
            path.read_text(errors="replace") for path in (place / f"{name}.txt", place / "all.txt") if path.is_file()
        )
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        return Checked(name, {}, (f"it cannot be loaded: {lines[-1] if lines else 'no message'}",))
    found = json.loads(written.read_text())
    other = other_weights(winner, name, torch.load(weights)) if weights.is_file() else []
    return Checked(name, found, tuple(_wrong(winner, found, scale, other, latency)))


def _environment() -> dict[str, str]:
    """The environment of a check, in which this package can be imported."""
    places = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


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
