"""The cost of a position in every token mixer as sequences grow, compared with full attention and public code.

    python -m benchmarks.mixers [--only NAME ...] [--quick] [--device cpu] [--json]

A mixer is a registered block of attention (linear and sparse too), convolution or recurrence. Each reads one sequence
of T positions, forward without gradients and in training (forward and backward), with the sizes below. Full attention
is four projections around `scaled_dot_product_attention`, causal or not like the mixer. Time is this process's CPU time
on one thread, so that other processes disturb it little (on a GPU: time between events). All lengths and both systems
of a pair take turns. Freed memory stays with the process, because otherwise large tensors would cost page faults.
Memory is the peak size of the results of operations, counted for both systems by `searchspace.testing.peak_bytes`.
`grows` is the exponent of T in the declared FLOPs. `slope` is the exponent of T in the measured time per position, from
1,024 on.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.support.published import Published, installed, published
from benchmarks.support.report import report
from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.registry import BlockType, Configured, block_types
from searchspace.testing import peak_bytes, primitives
from tuner.measure.measure import Call, Clock, Timing, clock_of, compare, measure

FAMILIES = ("attention", "linear_attention", "sparse_attention", "convolution", "recurrence")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
QUICK = (1024, 4096)
DIM, HEADS = 256, 4
MEMORY = 64  # positions of an encoder, for the mixers that need one
SLOPE = 0.15
LONGEST_QUADRATIC = 2048  # limit for mixers that grow faster than T ** 1.6, except full attention
# The defaults of these blocks are meant for short tests.
FIELDS: dict[str, dict[str, Any]] = {
    "adaptive_span_attention": {"span": 128, "ramp": 32},
    "bigbird_attention": {"block": 64},
    "causal_long_short_attention": {"window": 128, "chunk": 16, "chunks": 64},
    "compressive_attention": {"segment": 128, "memory": 128, "compressed": 128},
    "linformer_attention": {"length": LENGTHS[-1], "slots": 128},
    "long_short_attention": {"window": 128},
    "longformer_attention": {"window": 128},
    "lsh_attention": {"chunk": 64, "buckets": None},
    "relative_attention": {"segment": 128, "memory": 128},
    "sliding_window_attention": {"window": 128},
}
Pass = Callable[[int], Call]


class FullAttention(nn.Module):
    """Four projections and PyTorch's own kernel. x: [B, T, C] -> [B, T, C]."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.query_key_value, self.output = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.query_key_value(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=self.causal)
        return self.output(out.transpose(1, 2).flatten(2))


class ProcessTime:
    """The CPU time of this process, which other processes affect little."""

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Call) -> float:
        start = time.process_time_ns()
        call()
        return (time.process_time_ns() - start) / 1e6


@dataclass(frozen=True)
class System:
    """A system to measure at `lengths`: `module` in both passes, with its output from `call(x)`."""

    name: str
    module: nn.Module
    call: Callable[[Tensor], Tensor]
    lengths: tuple[int, ...]
    device: str

    def forward(self, x: Tensor) -> None:
        with torch.no_grad():
            self.call(x)

    def training(self, x: Tensor) -> None:
        self.call(x).sum().backward()
        self.module.zero_grad()
        x.grad = None

    def run(self, training: bool, length: int) -> Call:
        self.module.train(training)
        x = torch.randn(1, length, DIM, device=self.device, generator=torch.Generator(self.device).manual_seed(0))
        x.requires_grad_(training)  # layers below would need this gradient
        return partial(self.training if training else self.forward, x)


@dataclass(frozen=True)
class Settings:
    lengths: tuple[int, ...]
    repeats: int
    budget: float  # seconds for one mixer in one pass
    device: str

    @property
    def clock(self) -> Clock:
        return ProcessTime() if self.device == "cpu" else clock_of(self.device)


@dataclass(frozen=True)
class Row:
    """The measurements of a system in one pass: a timing and the peak in bytes, by length."""

    system: System
    training: bool
    times: dict[int, Timing]
    peaks: dict[int, int]

    def a_position(self, length: int) -> float:
        """Microseconds per position at `length`."""
        return 1e3 * self.times[length].median / length

    def slope(self) -> float:
        """The slope of the logarithm of the time per position over the logarithm of T, by least squares."""
        points = [(math.log(n), math.log(self.a_position(n))) for n in self.times if n >= 1024]
        x, y = (fmean(column) for column in zip(*points, strict=True))
        below = sum((a - x) ** 2 for a, _ in points)
        return sum((a - x) * (b - y) for a, b in points) / below if below else math.nan

    def over(self, other: Row) -> tuple[float, float]:
        """The worst ratio to `other` in time and in memory, at the lengths that both have, from 1,024 on."""
        both = [n for n in self.times if n in other.times and n >= 1024]
        times = max(compare(self.times[n], other.times[n]).median for n in both)
        return times, max(self.peaks[n] / other.peaks[n] for n in both)


def ours(kind: BlockType, causal: bool, fields: dict[str, Any], settings: Settings) -> tuple[System, float]:
    """The block, and the exponent of T in its declared FLOPs."""
    given = Given(dim=DIM, causal=causal, memory=kind.name == "attending_gru")
    surroundings = {name: getattr(given, name) for name in kind.given}
    sizes = {"heads": HEADS} if "heads" in kind.fields else {}
    configured = Configured(kind, kind.config(**surroundings, **sizes | FIELDS.get(kind.name, {}) | fields))
    few, many = (configured.cost(Shape(length=n, memory=MEMORY)).flops for n in (4096, 16384))
    grows = math.log(many / few, 4)
    module = configured.build().to(settings.device)
    memory = torch.randn(1, MEMORY, DIM, device=settings.device) if given.memory else None
    lengths = tuple(n for n in settings.lengths if grows < 1.6 or n <= LONGEST_QUADRATIC)
    return System(kind.name, module, lambda x: module(x, Context(memory=memory)), lengths, settings.device), grows


def theirs(pair: Published, settings: Settings) -> System:
    module = pair.make(DIM, HEADS, LENGTHS[-1]).to(settings.device)
    lengths = tuple(n for n in settings.lengths if n <= pair.most)
    return System(pair.name, module, module, lengths, settings.device)


def measured(systems: Sequence[System], training: bool, settings: Settings) -> list[Row]:
    """All systems at all their lengths in turns."""
    calls = {(s.name, n): s.run(training, n) for s in systems for n in s.lengths}
    peaks = {key: peak_bytes(call) for key, call in calls.items()}  # and warm-up
    named = {f"{name} {length}": call for (name, length), call in calls.items()}
    times = measure(
        named, warmup=0, repeats=settings.repeats, budget_seconds=settings.budget, clock=settings.clock,
    )  # fmt: skip
    return [
        Row(s, training, {n: times[f"{s.name} {n}"] for n in s.lengths}, {n: peaks[s.name, n] for n in s.lengths})
        for s in systems
    ]


def rows(only: Sequence[str], settings: Settings, reason: str | None) -> Iterator[dict[str, Any]]:
    """Full attention in both directions, then every mixer alone, then each mixer with a public counterpart in turns
    with it.
    """
    full: dict[tuple[bool, bool], Row] = {}
    for causal in (False, True):
        attention = FullAttention(causal).to(settings.device)
        system = System("full attention", attention, attention, settings.lengths, settings.device)
        for training in (False, True):
            full[causal, training] = measured([system], training, replace(settings, repeats=1))[0]
            yield shown(full[causal, training], causal, 2.0, full, None)
    for kind in mixers():
        if only and kind.name not in only:
            continue
        ways = [True] if kind.module.capabilities.causal else [False]
        pairs = [pair for pair in published() if pair.mixer == kind.name] if reason is None else []
        for causal, pair in [(pair.causal, pair) for pair in pairs] or [(ways[0], None)]:
            system, grows = ours(kind, causal, pair.fields if pair else {}, settings)
            for training in (False, True):
                print(f"{kind.name}, {'training' if training else 'forward'}", file=sys.stderr)
                systems = [system] + ([theirs(pair, settings)] if pair else [])
                first, *others = measured(systems, training, settings)
                yield shown(first, causal, grows, full, others[0] if others else None)
                for other in others:
                    yield shown(other, causal, grows, full, None)


@cache
def mixers() -> list[BlockType]:
    return [kind for kind in primitives("block") if kind.family in FAMILIES and kind.name in block_types("block")]


def shown(
    row: Row, causal: bool, grows: float, full: dict[tuple[bool, bool], Row], other: Row | None
) -> dict[str, Any]:
    times, memory = row.over(other) if other else ("", "")
    slope, longest = row.slope(), max(row.times)
    linear = grows < 1.05 and type(row.system.module).__module__.startswith("searchspace")
    reached = [slope <= SLOPE] if linear else []
    reached += [times <= 1.0, memory <= 1.0] if other else []  # type: ignore[operator]
    attention = full[causal, row.training].a_position(1024)
    return {
        "mixer": row.system.name,
        "reads": "past" if causal else "all",
        "pass": "training" if row.training else "forward",
        "grows": round(grows, 2),
        **{f"us at {n}": round(row.a_position(n), 2) if n in row.times else "" for n in full[causal, False].times},
        "slope": "" if math.isnan(slope) else round(slope, 3),
        "KiB": round(row.peaks[longest] / longest / 1024, 1),
        "x full at 1024": round(row.a_position(1024) / attention, 2),
        "x public": round(times, 2) if other else "",  # type: ignore[call-overload]
        "x its memory": round(memory, 2) if other else "",  # type: ignore[call-overload]
        "reached": "" if not reached else "yes" if all(reached) else "no",
    }


def keep_memory() -> None:
    """Never return memory to the system, neither freed memory at the end of the heap nor large single allocations."""
    try:
        allocator = ctypes.CDLL("libc.so.6").mallopt
    except OSError:
        return  # not the GNU C library
    trim_threshold, mmap_threshold = -1, -3
    allocator(trim_threshold, 2**31 - 1)
    allocator(mmap_threshold, 2**30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of the mixers to measure; default: all")
    parser.add_argument("--quick", action="store_true", help="a minute: two lengths, once each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_memory()
    settings = Settings(LENGTHS, 5, 20.0, options.device)
    if options.quick:
        settings = Settings(QUICK, 1, 2.0, options.device)
    with installed() as reason:
        found = list(rows(options.only, settings, reason))
    notes = [
        f"bars: slope <= {SLOPE} if the declared FLOPs grow as T; ours over public <= 1 in time and in memory, at the "
        "worst length",
        "times are microseconds of CPU time per position; memory is KiB per position at the longest length",
    ]
    if reason is not None:
        notes.append(f"not measured: the public implementations ({reason})")
    report("Token mixers", found, as_json=options.json, notes=notes)


if __name__ == "__main__":
    main()
