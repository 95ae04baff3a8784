"""Random architectures with all blocks: each must build, train a step, cost what it declares, and stream.

    python -m benchmarks.random_architectures [--count 2000] [--seed 0] [--quick] [--json]

They are drawn from the `everything` spaces of the examples: decoders, encoders and encoder-decoders in turn. Large
sizes are replaced by small ones (`small`), which does not change the structure. Checks of each architecture: the
declared parameters are those of the module; the declared FLOPs are those that PyTorch counts, forward and in training;
a backward pass gives a finite gradient in every parameter; if it can stream, reading in pieces of different lengths
gives the same result as reading at once, and the state has the declared size. Dropout is active in training. The bar is
zero failures.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.support.report import report
from benchmarks.support.spaces import EVERYTHING, loaded
from searchspace.combinators.halting import Halting
from searchspace.contract import Context, Streams
from searchspace.cost import Cost, Shape
from searchspace.model.architecture import Architecture
from searchspace.registry import Configured
from searchspace.space.space import Space
from searchspace.testing import count_flops
from searchspace.tree import Block, Choice, Integers, Value

# Limits for fields whose larger values only cost time, or make a difference only on longer sequences.
LARGEST = {"width": 64, "hidden": 256, "features": 32, "alignment": 64, "times": 2, "segment": 16, "memory": 16}
LENGTHS = (1, 2, 7, 20, 41)
CLOSE = 1e-8  # tolerance in float64; normalised layers amplify rounding errors


@dataclass(frozen=True)
class Failure:
    """A failed check: the number of the draw, its space, the check and what happened."""

    number: int
    kind: str
    check: str
    what: str
    architecture: str


@cache
def space(kind: str) -> Space:
    """The space `kind` with small sizes instead of large ones."""
    return Space(small(loaded(kind).root), (), max(LENGTHS))


def small(value: Any, field: str = "") -> Any:
    """The tree with the fields of LARGEST limited to those values; everything else is unchanged."""
    most = LARGEST.get(field)
    match value:
        case Block():
            return Block(value.name, {name: small(inner, name) for name, inner in value.fields.items()}, value.mark)
        case tuple():
            return tuple(small(inner) for inner in value)
        case Integers() if most is not None:
            return replace(value, low=min(value.low, most), high=min(value.high, most))
        case Choice():
            kept = tuple(option for option in value.options if most is None or not _is_above(option, most))
            return replace(value, options=tuple(small(option, field) for option in kept or value.options[:1]))
    return value


def _is_above(option: Value, most: int) -> bool:
    return type(option) is int and option > most


def inputs(model: Configured, length: int) -> tuple[Tensor, ...]:
    """Tokens of two sequences, [2, length]. For an encoder-decoder, a source with two more positions comes first."""
    count = 2 if model.type.name == "encoder_decoder" else 1
    return tuple(torch.randint(0, 256, (2, length + 2 * i)) for i in reversed(range(count)))


class Tried:
    """One built architecture with inputs."""

    def __init__(self, architecture: Architecture, length: int) -> None:
        self.configured = architecture.configured
        self.inputs = inputs(self.configured, length)
        self.shape = Shape(batch=2, length=length, memory=length + 2 if len(self.inputs) > 1 else 0)
        self.model = without_halting(self.configured.build()).train()

    def cost(self, **changes: Any) -> Cost:
        return self.configured.cost(replace(self.shape, **changes))

    def parameters(self) -> None:
        """Check that the number of parameters is as declared."""
        declared, found = self.cost().parameters, sum(p.numel() for p in self.model.parameters())
        assert declared == found, f"{declared} declared, {found} found"

    def flops(self) -> None:
        """Check that the FLOPs are as declared, forward and in training."""

        def loss() -> Tensor:
            context = Context()
            return self.model(*self.inputs, context).sum() + context.loss()

        cost, counted = self.cost(), count_flops(loss)
        assert (cost.flops, cost.training_flops) == counted, f"{cost.flops, cost.training_flops} declared, {counted}"
        self.model.zero_grad()

    def gradients(self) -> None:
        """Check that every parameter has a finite gradient, from the logits and the auxiliary losses.

        It needs a long sequence: in a short one, nothing is old enough to be compressed.
        """
        context = Context()
        out = self.model(*inputs(self.configured, max(LENGTHS)), context)
        assert out.isfinite().all(), "the output is not finite"
        ((out * torch.randn_like(out)).mean() + context.loss()).backward()
        missing = [name for name, parameter in self.model.named_parameters() if parameter.grad is None]
        assert not missing, f"no gradient in {', '.join(missing)}"
        wild = [name for name, parameter in self.model.named_parameters() if not parameter.grad.isfinite().all()]
        assert not wild, f"no finite gradient in {', '.join(wild)}"

    def streaming(self) -> None:
        """Check that reading in pieces gives the same as reading at once, and that the state has the declared size."""
        model = self.model.double().eval()
        with torch.no_grad():
            whole = model(*self.inputs)
            context = Context(streams=Streams())
            if len(self.inputs) > 1:
                model.encode(self.inputs[0], context)
            parts = [_read(model, piece, context) for piece in pieces(self.inputs[-1])]
        worst = (torch.cat(parts, dim=1) - whole).abs().max() / whole.abs().max().clamp(min=1e-3)
        assert worst <= CLOSE, f"pieces differ from the whole by {worst:.1e} of its largest value"
        declared, kept = self.cost(element_bytes=8).state_bytes, context.streams.nbytes() if context.streams else 0
        assert declared == kept, f"{declared} bytes of state declared, {kept} kept"

    @property
    def streams(self) -> bool:
        """Whether the architecture declares that it can stream."""
        return not getattr(self.model, "cannot_stream", ["an encoder"])


def _read(model: Any, piece: Tensor, context: Context) -> Tensor:
    return model(piece, context) if context.get("memory") is None else model.decode(piece, context)


def pieces(tokens: Tensor) -> Iterator[Tensor]:
    """tokens: [B, T] -> pieces of 1, 2, 3, ... positions, [B, n] each."""
    start, size = 0, 1
    while start < tokens.shape[1]:
        yield tokens[:, start : start + size]
        start, size = start + size, size + 1


def without_halting(model: nn.Module) -> nn.Module:
    """Prevent all positions from halting, so that every step is counted and no sum is close to the threshold."""
    for module in model.modules():
        if isinstance(module, Halting):
            nn.init.constant_(module.halt.bias, -30.0)
            nn.init.normal_(module.halt.weight, std=1e-3)
    return model


def attempt(architecture: Architecture, length: int, note: Callable[[str], None]) -> tuple[str, str] | None:
    """The first check that fails with what happened, or None. `note` is called with the name of each check
    that passes.
    """
    check = "builds"
    try:
        tried = Tried(architecture, length)
        note(check)
        for check in ("parameters", "flops", "gradients", "streaming"):
            if check == "streaming" and not tried.streams:
                continue
            getattr(tried, check)()
            note(check)
    except Exception as error:  # any exception is a failure that this benchmark looks for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return check, f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    return None


def run(count: int, seed: int) -> tuple[dict[str, Counter[str]], list[Failure]]:
    """Try `count` architectures. Returns how often each check was done, by space, and the failures."""
    tally: dict[str, Counter[str]] = {kind: Counter() for kind in EVERYTHING}
    failures: list[Failure] = []
    torch.set_num_threads(1)  # the models are small, so more threads would only wait
    for number in range(count):
        kind, rng = EVERYTHING[number % len(EVERYTHING)], random.Random(f"{seed}/{number}")
        torch.manual_seed(number)
        architecture = space(kind).sample(rng).architecture
        length = rng.choice(LENGTHS)

        def note(check: str, kind: str = kind) -> None:
            tally[kind][check] += 1

        if wrong := attempt(architecture, length, note):
            tally[kind]["failures"] += 1
            failures.append(Failure(number, kind, *wrong, f"# length {length}\n{architecture.text()}"))
    return tally, failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Random architectures build, train, cost what is declared and stream.")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="60 of them")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    count = 60 if options.quick else options.count
    tally, failures = run(count, options.seed)
    checks = ("builds", "parameters", "flops", "gradients", "streaming", "failures")
    rows = [{"space": kind} | {check: counts[check] for check in checks} for kind, counts in tally.items()]
    total = {"space": "all"} | {check: sum(counts[check] for counts in tally.values()) for check in checks}
    notes = [f"{count} architectures, seed {options.seed}; failures: {len(failures)} (bar: 0)"]
    report("Random architectures of all blocks", [*rows, total], as_json=options.json, notes=notes)
    for failure in failures[:10]:
        where = f"architecture {failure.number} of {failure.kind}, {failure.check}"
        print(f"\n{where}: {failure.what}\n{failure.architecture}", file=sys.stderr)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
