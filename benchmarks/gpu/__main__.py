"""Compares operations on a GPU with the best libraries for them: `python -m benchmarks.gpu [--only PART ...]`.

Each case is tuned, then timed in turns with PyTorch (every backend), torch.compile, and with Liger-Kernel, Flash Linear
Attention and flash-attn if they are installed. Its figure is printed next to its target ("bar"). Results are stored
in a JSON file, and the same command continues with the rest; `--budget` limits its time. `--device cpu --small` runs
everything at tiny sizes, to check that it works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import choice
from benchmarks.gpu.cases import PARTS, Bar, Case, comparable
from benchmarks.support.report import report
from kernels.dispatch import registry, tuned
from kernels.dispatch.device import Device, fingerprint
from tuner.measure.measure import Timing, compare, measure
from tuner.outcome import of_exception, poisons

OPERATION, TRITON = "operation", "our Triton"
TUNE = "tune"  # the part that tunes all operations and compares the choices with the defaults
UNITS = {"TFLOP/s": 1e12, "GB/s": 1e9}
SHARE = 0.5  # the largest share of the budget that one case may spend on its choice


class Kept:
    """Rows by key in a JSON file, which is written after each row."""

    def __init__(self, path: Path, again: bool) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if path.is_file() and not again:
            with contextlib.suppress(ValueError):  # a file that was cut short: everything is measured again
                self.rows = json.loads(path.read_text(encoding="utf-8"))["rows"]

    def add(self, key: str, row: dict[str, Any]) -> None:
        self.rows[key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        partial.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)


def key_of(case: Case, device: Device) -> str:
    """The key of a row: it is valid for one device with its software, and one source of every implementation."""
    operation = registry.operation(case.problem.operation)
    sources = "".join(each.source[:4] for each in operation.implementations.values())
    return f"{case.part} {case.problem} {device.key} {sources}"


def measured(case: Case, device: str, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Find the fastest choice, time it in turns with its peers, and compare the figures with the bars."""
    operation = registry.operation(case.problem.operation)
    run = choice.Run(operation.inputs(case.problem, 0), case.learns)
    times, failed = choice.choose(
        case.problem, run, device, evaluations=options.evaluations, seconds=min(options.seconds, SHARE * seconds)
    )
    best = choice.fastest(times)
    if best is None:
        raise RuntimeError(f"no choice computes {case.problem}: {next(iter(failed.values()))}")
    choice.serve(case.problem, best, times[best])
    ours = {OPERATION: partial(tuned.launch, operation, case.problem, None)}
    if (own := choice.fastest(times, "triton")) is not None:
        ours[TRITON] = partial(tuned.launch, operation, case.problem, own)
    calls: dict[str, Callable[[], object]] = {name: partial(run, call) for name, call in ours.items()}
    peers, refused = _correct_peers(case, run, ours[OPERATION])
    calls |= {name: partial(run, call) for name, call in peers.items()}
    found = measure(calls, device=device, warmup=2, repeats=options.rounds, budget_seconds=20.0)
    return {
        "part": case.part,
        "shape": case.label,
        "device": fingerprint(device).name,
        "choice": str(best),
        "times": {name: {"ms": each.median, "low": each.low, "high": each.high} for name, each in found.items()},
        "figures": {name: case.amount / each.median * 1e3 / UNITS[case.unit] for name, each in found.items()},
        "unit": case.unit,
        "refused": refused | {str(choice): reason for choice, reason in failed.items()},
        "bars": [judged(bar, case, found, fingerprint(device).name) for bar in case.bars],
    }


def _correct_peers(case: Case, run: choice.Run, ours: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The peers whose results equal those of the operation, and the reason why each other peer is left out."""
    expected, dtype = run(ours), getattr(torch, case.problem.dtype)
    peers, refused = {}, {}
    for name, call in case.peers(run.arguments).items():
        try:
            found = run(call)
            reason = choice.differs(found, expected, dtype) if comparable(case, name) else None
        except Exception as error:
            if poisons(error):
                raise
            reason = of_exception(error).message
        if reason is None:
            peers[name] = call
        else:
            refused[name] = reason
    return peers, refused


def judged(bar: Bar, case: Case, found: Mapping[str, Timing], device: str) -> dict[str, Any]:
    """A bar, its figure, and whether it is reached; None if this device cannot decide that."""
    value, text, fair = _figure(bar, case, found)
    here = bar.device in device
    if not here:
        text += f", on an {bar.device}"
    reached = None if value is None or not here else value >= bar.value or fair
    return {"bar": text, "value": value, "reached": reached}


def _figure(bar: Bar, case: Case, found: Mapping[str, Timing]) -> tuple[float | None, str, bool]:
    """(the figure, its meaning as text, whether the interval of the comparison reaches one)."""
    own = found[OPERATION]
    if bar.kind == "best_peer":
        peers = [name for name in found if name not in (OPERATION, TRITON) and comparable(case, name)]
        best = min(peers, key=lambda name: found[name].median, default=None)
        ratio = compare(found[best], own) if best else None
        text = f">= {bar.value:g} x the best peer" + (f" ({best})" if best else "")
        return (ratio and ratio.median), text, bool(ratio and ratio.high >= 1)
    if bar.kind == "triton_amount":
        value = case.amount / found[TRITON].median * 1e3 / UNITS[case.unit] if TRITON in found else None
        return value, f"our Triton >= {bar.value:g} {case.unit}", False
    if bar.kind == "of_copy":
        value = compare(found["copy"], own).median if "copy" in found else None
        return value, f">= {bar.value:g} of the copy bandwidth", False
    assert bar.kind == "times", bar.kind
    value = compare(found[bar.against], own).median if bar.against in found else None
    return value, f">= {bar.value:g} x {bar.against}", False


def tuned_all(device: str, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """`tune all --effort quick`, then every entry of its table against its default."""
    from tuner import problems
    from tuner.search import tables
    from tuner.search.session import tune

    operations = list(registry.operations().values())
    wanted = problems.named(operations, device)
    if options.small:
        wanted = {name: some[:1] for name, some in wanted.items() if name == "softmax"}
    limit = 300.0
    report = tune(wanted, device=device, effort="quick", budget_seconds=2.0 if options.small else 280.0)
    tables.update(device, report.decisions, report.threads)
    named = {each.problem for each in report.decisions}
    yield (
        "tune all",
        _plain(
            "tune",
            "all, quick",
            {"seconds": report.seconds, "decided": len(report.decisions), "undecided": len(report.undecided)},
            {"bar": f"<= {limit:g} s", "value": report.seconds, "reached": report.seconds <= limit},
        ),
    )
    entries = [each for each in tuned.table(device).entries.values() if each.problem in named]
    checked = list(tables.verify(device, entries, 1))
    worse = [str(each.problem) for each in checked if not each.sound]
    yield (
        "tune verify",
        _plain(
            "tune",
            "against the defaults",
            {"problems": len(checked), "worse": worse},
            {"bar": "0 shapes worse than the default", "value": len(worse), "reached": not worse},
        ),
    )


def _plain(part: str, shape: str, figures: dict[str, Any], bar: dict[str, Any]) -> dict[str, Any]:
    return {"part": part, "shape": shape, "times": {}, "figures": figures, "unit": "", "refused": {}, "bars": [bar]}


def printed(rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print every figure, then every bar."""
    table = [
        {"part": row["part"], "shape": row["shape"], "what": name, "ms": row["times"][name]["ms"], row["unit"]: figure}
        for row in rows
        for name, figure in row["figures"].items()
        if name in row["times"]
    ]
    lines = [
        {**{name: line[name] for name in ("part", "shape", "what", "ms")}, "rate": f"{line[unit]:.4g} {unit}"}
        for line in table
        for unit in line.keys() & UNITS.keys()
    ]
    bars = [f"{row['part']}, {row['shape']}: {_described(bar)}" for row in rows for bar in row["bars"]]
    left_out = [f"left out: {row['part']}, {row['shape']}: {name}: {why}" for row in rows for name, why in _first(row)]
    report("gpu: operations compared with other libraries", lines, as_json=as_json, notes=[*bars, *left_out])


def _described(bar: dict[str, Any]) -> str:
    reached = {True: "reached", False: "NOT reached", None: "not measured here"}[bar["reached"]]
    value = "" if bar["value"] is None else f" ({bar['value']:.4g})"
    return f"bar {bar['bar']}: {reached}{value}"


def _first(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The failures of all peers, and of one configuration."""
    peers = [(name, why) for name, why in row["refused"].items() if "=" not in name]
    return [*peers, *[each for each in row["refused"].items() if "=" in each[0]][:1]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", nargs="*", choices=[*PARTS, TUNE], default=[*PARTS, TUNE])
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that it works")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu/gpu.json"))
    parser.add_argument("--tables", type=Path, default=Path("runs/gpu/tables"), help="where tuned tables are written")
    parser.add_argument("--budget", type=float, default=560.0, help="seconds after which no case starts")
    parser.add_argument("--evaluations", type=int, default=16, help="configurations measured of each implementation")
    parser.add_argument("--seconds", type=float, default=12.0, help="for finding the choice of one case")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--again", action="store_true", help="measure known cases again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    os.environ[tuned.TABLES] = str(options.tables)
    tuned.use(options.device, None)
    until = time.monotonic() + options.budget
    kept, device = Kept(options.out, options.again), fingerprint(options.device)
    rows, left = [], 0
    for part in (each for each in PARTS if each in options.only):
        for case in PARTS[part](options.device, options.small):
            key = key_of(case, device)
            if key not in kept.rows:
                seconds = until - time.monotonic()
                if seconds <= 0:
                    left += 1
                    continue
                print(f"{part}: {case.label}", file=sys.stderr, flush=True)
                kept.add(key, measured(case, options.device, options, seconds))
                _emptied()
            rows.append(kept.rows[key])
    if TUNE in options.only:
        left += _tune_part(options, kept, device, rows, until)
    printed(rows, options.json)
    if left:
        print(f"{left} cases are left; the same command continues with them.", file=sys.stderr)
    return 0


def _tune_part(
    options: argparse.Namespace, kept: Kept, device: Device, rows: list[dict[str, Any]], until: float
) -> int:
    """Add the two rows of this part -> how many are left to measure."""
    keys = [f"{name} {device.key}" for name in ("tune all", "tune verify")]
    if not _has("scipy"):
        print("tune: skipped, because the default search strategy needs SciPy", file=sys.stderr)
        return 0
    if not all(key in kept.rows for key in keys):
        if not options.small and until - time.monotonic() < 480:  # it takes that long, and cannot be split
            return len(keys)
        for name, row in tuned_all(options.device, options):
            kept.add(f"{name} {device.key}", row)
    rows += [kept.rows[key] for key in keys]
    return 0


def _has(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _emptied() -> None:
    gc.collect()
    if "torch._dynamo" in sys.modules:  # code that was compiled for one shape is useless for the next
        torch.compiler.reset()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    raise SystemExit(main())
