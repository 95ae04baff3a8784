"""Mutants of our Triton kernels: small faults that the tuner's correctness check must find.

They are listed in `mutants.yaml`: dropped tiles, masks that are off by one, wrong scales, stale accumulators, programs
that overwrite one another, reads and writes outside a tensor, sums in a narrow dtype, missing gradient terms. Each
mutant replaces one text in the source code of a kernel. It runs in Triton's interpreter, or on a GPU if there is
one, and is checked as the tuner checks a configuration.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from kernels.dispatch import registry, tuned
from kernels.dispatch.registry import Choice, Operation, Problem
from tuner.measure import correctness


@dataclass(frozen=True)
class Target:
    """A kernel with a small problem and a configuration. Sizes are odd, so that every mask matters."""

    operation: str
    module: str
    sizes: Mapping[str, int]
    configuration: Mapping[str, Any]
    flags: Mapping[str, Any]

    def problem(self, dtype: str, device: str = "cpu") -> Problem:
        known = registry.operation(self.operation)
        some = (
            each for each in known.problems(device).values() if dict(self.flags).items() <= dict(each.flags).items()
        )
        first = next(each for each in some if each["gradients"])
        sizes = tuple((name, self.sizes[name]) for name, _ in first.sizes)
        return replace(first, sizes=sizes, dtype=dtype, device=device)

    @property
    def choice(self) -> Choice:
        implementation = registry.operation(self.operation).implementations["triton"]
        return Choice.of("triton", {**implementation.default, **self.configuration})


ROWS = {"rows": 5, "columns": 20}
TARGETS = {
    "softmax": Target("softmax", "kernels.rowwise.softmax_triton", ROWS, {"rows": 2}, {}),
    "softmax in steps": Target("softmax", "kernels.rowwise.softmax_triton", ROWS, {"step": 8}, {}),
    "rms_norm": Target("rms_norm", "kernels.rowwise.rms_norm_triton", ROWS, {"rows": 2, "programs": 2}, {}),
    "rms_norm in steps": Target("rms_norm", "kernels.rowwise.rms_norm_triton", ROWS, {"step": 8}, {}),
    "layer_norm": Target(
        "layer_norm", "kernels.rowwise.layer_norm_triton", ROWS, {"rows": 2, "programs": 2}, {"residual": True}
    ),
    "layer_norm in steps": Target(
        "layer_norm", "kernels.rowwise.layer_norm_triton", ROWS, {"step": 8}, {"residual": True}
    ),
    "cross_entropy": Target("cross_entropy", "kernels.rowwise.cross_entropy_triton", ROWS, {"block": 8}, {}),
    "gated_activation": Target(
        "gated_activation", "kernels.rowwise.gated_activation_triton", ROWS, {"block": 8}, {"gate": "gelu"}
    ),
    "rotary": Target(
        "rotary",
        "kernels.rowwise.rotary_triton",
        {"batch": 2, "heads": 3, "length": 5, "width": 12},
        {"rows": 4},
        {},
    ),
    "depthwise_convolution": Target(
        "depthwise_convolution",
        "kernels.convolution.depthwise_convolution_triton",
        {"batch": 2, "positions": 11, "channels": 6, "taps": 3},
        {"positions": 8, "channels": 4, "programs": 2},
        {},
    ),
    "attention": Target(
        "attention",
        "kernels.attention.kernels_triton",
        {"batch": 1, "heads": 2, "groups": 1, "queries": 37, "keys": 37, "width": 12, "reach": 37},
        {"block_q": 16, "block_k": 16, "backward_own": 16, "backward_step": 16},
        {"causal": True},
    ),
    "tiles of attention": Target(
        "attention",
        "kernels.attention.tiles_triton",
        {"batch": 1, "heads": 2, "groups": 2, "queries": 37, "keys": 37, "width": 12, "reach": 37},
        {"block_q": 16, "block_k": 16, "backward_own": 16, "backward_step": 16},
        {"causal": True},
    ),
    "linear_attention": Target(
        "linear_attention",
        "kernels.linear_attention.linear_attention_triton",
        {"batch": 1, "heads": 2, "positions": 37, "features": 20, "width": 12},
        {},
        {"causal": True},
    ),
}


DTYPES = ("float32", "bfloat16", "float16")  # in which a correct kernel is checked


@dataclass(frozen=True)
class Mutant:
    """A change of the source code. fault: a description. place: which occurrence of `old` is replaced by `new`."""

    target: str
    fault: str
    old: str
    new: str
    place: int = 0
    dtype: str = "float32"


def check(mutant: Mutant) -> str | None:
    """What the correctness check says about a mutant; None if it finds nothing."""
    target = TARGETS[mutant.target]
    # A module that is imported inside the block would keep the mutant's functions.
    for name in registry.operation(target.operation).implementations["triton"].files:
        importlib.import_module(name)
    with warnings.catch_warnings(), mutated(target.module, mutant):
        warnings.simplefilter("ignore")  # of the interpreter, about NaN
        try:
            return reason(target, mutant.dtype)
        except Exception as error:  # the tuner records it as crashed
            return f"raises {type(error).__name__}"


def reason_by_name(name: str, dtype: str) -> str | None:
    """What the correctness check says about a kernel as it is; None if it finds nothing."""
    return reason(TARGETS[name], dtype)


def reason(target: Target, dtype: str) -> str | None:
    """What the correctness check says about the kernel as it is now, on a GPU if there is one."""
    known: Operation = registry.operation(target.operation)
    problem = target.problem(dtype, "cuda" if torch.cuda.is_available() else "cpu")
    trial = correctness.trial(known, problem, seed=1)
    return correctness.differences(
        trial, tuned.bound(known, target.choice), correctness.dtype_of(problem), guarded=True, deterministic=True
    )


@contextmanager
def mutated(name: str, mutant: Mutant) -> Iterator[None]:
    """Inside the block all modules use the mutant's functions. Raises ValueError if the text is missing."""
    original = importlib.import_module(name)
    text = Path(str(original.__file__)).read_text(encoding="utf-8")
    parts = text.split(mutant.old)
    if len(parts) < mutant.place + 2:
        raise ValueError(f"{name} has no place {mutant.place} with {mutant.old!r}: adapt the mutant.")
    cut = mutant.place + 1
    changed = mutant.old.join(parts[:cut]) + mutant.new + mutant.old.join(parts[cut:])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutant.py"
        file.write_text(changed, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("mutant", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        pairs = {
            id(value): getattr(module, key)
            for key, value in vars(original).items()
            if hasattr(module, key) and (inspect.isfunction(value) or hasattr(value, "fn")) and _is_own(value, name)
        }
        patched = [
            (each, key, value)
            for each_name, each in list(sys.modules.items())
            if each_name.startswith("kernels.") and each is not None
            for key, value in list(vars(each).items())
            if id(value) in pairs
        ]
        for each, key, value in patched:
            setattr(each, key, pairs[id(value)])
        try:
            yield
        finally:
            for each, key, value in patched:
                setattr(each, key, value)


def _is_own(value: Any, module: str) -> bool:
    while not inspect.isfunction(value):
        value = value.fn
    return value.__module__ == module


def mutants() -> list[Mutant]:
    """All mutants of `mutants.yaml`."""
    known = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text(encoding="utf-8"))
    return [Mutant(target=target, **row) for target, rows in known.items() for row in rows]
