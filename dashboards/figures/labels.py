"""Readable names of quantities and values of holes."""

from __future__ import annotations

from typing import Any

KNOWN = {
    "flops": "FLOPs of one sequence",
    "training_flops": "FLOPs of one sequence in training",
    "parameters": "Parameters",
    "step_flops": "FLOPs of a training step",
    "state_bytes": "State (bytes)",
    "activation_bytes": "Activations (bytes)",
    "latency": "Latency (ms)",
    "bits_per_byte": "Bits per byte",
    "loss": "Loss",
    "error": "Error",
    "gradient_norm": "Gradient norm",
}
UNITS = {"_tokens_per_second": "tokens/s", "_ms": "ms", "_bytes": "bytes"}  # by the ending of a name


def labelled(name: str) -> str:
    """The name of an objective or a metric on an axis: bits_per_byte becomes Bits per byte."""
    if name in KNOWN:
        return KNOWN[name]
    for ending, unit in UNITS.items():
        if name.endswith(ending) and name != ending:
            return f"{labelled(name.removesuffix(ending))} ({unit})"
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def written(value: Any) -> str:
    """The value of a hole as in YAML: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)
