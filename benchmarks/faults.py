"""Checks that the tuner loses nothing after any failure: `python -m benchmarks.faults [--count 1000] [--json]`.

Sessions tune an operation with many implementations. Some of them crash their process, hang, raise errors, run out of
memory or give wrong numbers, everywhere or only in some places; a few are correct. In addition, child processes are
killed while they measure, and sessions while they run; a killed session is started again. At the end the store must
hold every measurement that a session reported, no configuration may be measured again without a reason, and each
problem must have a correct choice. A later session has a reason to repeat a measurement if it failed in a way that may
be temporary.

`--mutants` checks mutants of our own Triton kernels (`benchmarks/support/mutants.py`) as the tuner checks a
configuration: all of them must be found, and no correct kernel may be rejected. They run in Triton's interpreter, or on
a GPU if there is one.

`--seeds 500` checks every implementation of every operation on the inputs of 500 seeds, in float32 and bfloat16: none
may be rejected, whatever the processor. `ATEN_CPU_CAPABILITY=avx2` (or `default`) computes as other processors do.
`--triton` checks the Triton kernels instead, in their interpreter, in float32 and float16.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.support.report import report
from tuner.search.candidates import HOPELESS

FAULTS = ("crash", "segfault", "hang", "raise", "memory", "wrong", "wrong_gradient", "wrong_in_places")
RIGHT = 3  # correct implementations per problem
LIVES = 240  # the most measurements of a session before it is killed (more after many kills)
ROWS = 24
OPERATION = """
import ctypes, os, time
import torch
from kernels.dispatch.registry import Implementation, Operation, Problem, register

COUNT = {count}
FAULTS = {faults!r}

def reference(x, w):
    return x * w

def right(x, w, number=0):
    return x * w

def faulty(fault):
    def call(x, w, number=0):
        if fault == "crash":
            os._exit(7)
        if fault == "segfault":
            ctypes.string_at(0)
        if fault == "hang":
            time.sleep(1000)
        if fault == "raise":
            raise RuntimeError("injected")
        if fault == "memory":
            raise MemoryError("injected")
        if fault == "wrong_gradient":
            return x.detach() * w + (x - x.detach())
        if fault == "wrong_in_places":
            return torch.where(x > 1.5, x * w + 0.01, x * w)
        return x * w + 0.01
    return call

def inputs(problem, seed):
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(size, generator=generator, requires_grad=True) for size in ((problem["rows"], 8), (8,)))
    return (x, w), {{}}

several = [Implementation("right", right, {{"number": tuple(range({right}))}}, default={{"number": 0}})]
several += [
    Implementation(fault, faulty(fault), {{"number": tuple(range(COUNT))}}, default={{"number": 0}}) for fault in FAULTS
]
register(Operation("injected", reference, {{each.name: each for each in several}}, inputs,
    lambda device: {{}}, lambda problem: "right", sizes=("rows",)))
"""


def session(folder: Path, problems: int, seed: int) -> None:
    """One session in its own process: prints each measurement that is written, then the chosen candidates."""
    from kernels.dispatch.registry import Problem
    from tuner.measure.children import Children, Patience
    from tuner.problems import configuration_text
    from tuner.problems import text as problem_text
    from tuner.search.cache import Cache
    from tuner.search.effort import EFFORTS, Effort
    from tuner.search.operation_bench import OperationBench
    from tuner.search.results import Results
    from tuner.search.session import tune

    EFFORTS["quick"] = Effort("quick", 10**6, 10**6, 5, 0.002, 2, 7, 0.01, None, 1.0)
    write, run, compare = Cache.write, Children.run, OperationBench.compare
    rng = random.Random(f"{seed} {os.getpid()}")
    compared: list[bool] = []  # whether the newest outcomes are of a comparison

    def written(self: Cache, problem: Any, outcomes: Any, mark: str | None = None) -> str | None:
        turns = write(self, problem, outcomes, mark)
        single = not compared
        compared.clear()
        for choice, outcome in outcomes.items():
            row = [
                problem_text(problem, 1),
                choice.implementation,
                configuration_text(choice),
                outcome.kind.value,
                single,
            ]
            print(json.dumps({"row": row}), flush=True)
        return turns

    def comparing(self: OperationBench, times: Any) -> Any:
        compared.append(True)
        return compare(self, times)

    def killed(self: Children, job: Any) -> Any:
        if rng.random() < 0.03 and self.child is not None:
            print(json.dumps({"killed": "child"}), flush=True)
            child = self.child
            threading.Timer(rng.uniform(0.0, 0.01), child.signal, [signal.SIGKILL]).start()
        return run(self, job)

    Cache.write, Children.run, OperationBench.compare = written, killed, comparing  # type: ignore[method-assign]
    wanted = [Problem("injected", "cpu", "float32", (("rows", ROWS + number),)) for number in range(problems)]
    found = tune(
        {"injected": wanted},
        store=Results(folder / "measurements.db"),
        threads=1,
        load=[str(folder / "injected.py")],
        patience=Patience(shortest=1.0, longest=2.0),  # a correct check takes longer on a busy machine
    )
    served = [str(each.choice) for each in found.decisions]
    print(json.dumps({"served": served, "undecided": len(found.undecided)}), flush=True)


def measure(count: int, seed: int) -> list[dict[str, Any]]:
    """Run sessions until all problems are decided, killing them at random -> the outcomes of the faults."""
    problems = max(1, -(-count // (len(FAULTS) * HOPELESS)))
    each = min(HOPELESS, -(-count // (problems * len(FAULTS))))
    reported: list[list[Any]] = []  # session, problem, implementation, configuration, kind, whether measured alone
    sessions = 0
    deaths, rng = Counter[str](), random.Random(seed)
    final: dict[str, Any] | None = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = OPERATION.format(count=each, faults=FAULTS, right=RIGHT)
        folder.joinpath("injected.py").write_text(text)
        while final is None:
            arguments = ["--session", str(folder), "--problems", str(problems), "--seed", str(seed)]
            command = [sys.executable, "-m", "benchmarks.faults", *arguments]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            # Kills become rarer, so that the benchmark ends.
            longest = min(count, LIVES)
            lives = rng.randrange(longest // 4, longest) * (1 + deaths["session"] // 4)
            assert process.stdout is not None
            sessions += 1
            for line in process.stdout:
                said = json.loads(line)
                if "row" in said:
                    reported.append([sessions, *said["row"]])
                    lives -= 1
                elif "killed" in said:
                    deaths["child"] += 1
                else:
                    final = said
                if lives == 0:
                    process.send_signal(signal.SIGKILL)
                    deaths["session"] += 1
                    # What it printed before the signal is still in the pipe, and counts.
            process.stdout.close()
            process.wait()
            if process.returncode not in (0, -signal.SIGKILL):
                raise RuntimeError(f"a session ended with exit code {process.returncode}")
        return _rows(folder, reported, deaths, final)


def _rows(folder: Path, reported: list[list[Any]], deaths: Counter[str], final: dict[str, Any]) -> list[dict[str, Any]]:
    from tuner.search.results import Results

    rows = Results(folder / "measurements.db").rows()
    said = Counter(tuple(each[1:5]) for each in reported)
    stored = Counter((row.problem, row.implementation, row.configuration, row.failure or "timed") for row in rows)
    lost = sum((said - stored).values())
    kinds = Counter(row.failure for row in rows if row.failure)
    none = final["served"].count("None")
    wrong = sum(not choice.startswith("right") for choice in final["served"]) - none
    faults = sum(kinds.values()) + deaths["session"] + deaths["child"]
    return [
        {"what": "faults injected", "count": faults, "bar": ""},
        *({"what": f"... {kind}", "count": number, "bar": ""} for kind, number in sorted(kinds.items())),
        {"what": "... children killed from outside", "count": deaths["child"], "bar": ""},
        {"what": "... sessions killed and started again", "count": deaths["session"], "bar": ""},
        {"what": "rows reported and not in the store", "count": lost, "bar": "0"},
        {"what": "measured again without a reason", "count": repeated(reported), "bar": "0"},
        {"what": "problems served wrong", "count": wrong, "bar": "0"},
        {"what": "problems without a choice", "count": none, "bar": "0"},
        {"what": "problems undecided", "count": final["undecided"], "bar": "0"},
    ]


def repeated(reported: list[list[Any]]) -> int:
    """The number of unnecessary repetitions among the measurements of single configurations.

    A repetition is necessary if the last outcome was a failure that may be temporary, in an earlier session, and there
    were fewer than `TRIES` such failures in a row.
    """
    from tuner.outcome import TEMPORARY
    from tuner.search.cache import TRIES

    known: dict[tuple[str, ...], list[Any]] = {}
    count = 0
    for session, *configuration, kind, single in reported:
        before = known.setdefault(tuple(configuration), [])
        failures = list(itertools.takewhile(lambda each: each[1] in TEMPORARY, reversed(before)))
        may_be_tried = 0 < len(failures) < TRIES and failures[0][0] < session
        count += bool(single and before and not may_be_tried)
        before.append((session, kind))
    return count


def measure_mutants(processes: int) -> list[dict[str, Any]]:
    """Check every mutant of our kernels, and the kernels themselves -> a row per kernel."""
    from benchmarks.support.mutants import DTYPES, TARGETS, check, mutants, reason_by_name

    every, kernels = mutants(), [*itertools.product(TARGETS, DTYPES)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        answers, reasons = pool.map(check, every), pool.map(reason_by_name, *zip(*kernels, strict=True))
        missed = [mutant for mutant, answer in zip(every, answers, strict=True) if answer is None]
        wrong = [(*kernel, reason) for kernel, reason in zip(kernels, reasons, strict=True) if reason is not None]
    for mutant in missed:
        print(f"not found: {mutant.target}: {mutant.fault}", file=sys.stderr)
    for name, dtype, reason in wrong:
        print(f"rejected: {name} in {dtype}: {reason}", file=sys.stderr)
    counts, survivors = (Counter(each.target for each in some) for some in (every, missed))
    rejected = Counter(name for name, *_ in wrong)
    rows = [
        {
            "kernel": name,
            "mutants": counts[name],
            "not found": survivors[name],
            "correct, checked in dtypes": len(DTYPES),
            "rejected": rejected[name],
        }
        for name in TARGETS
    ]
    whole = {name: sum(row[name] for row in rows) for name in rows[0] if name != "kernel"}
    return [*rows, {"kernel": "all", **whole}]


def measure_seeds(seeds: int, triton: bool, processes: int) -> list[dict[str, Any]]:
    """Check correct implementations on the inputs of many seeds -> a row per operation."""
    from benchmarks.support.seeds import check
    from kernels.dispatch.registry import operations

    # Triton's interpreter truncates to bfloat16, and a GPU rounds.
    jobs = [
        *itertools.product(operations(), ("float32", "float16" if triton else "bfloat16"), (triton,), (range(seeds),))
    ]
    rows: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for (name, *_), (ways, lines) in zip(jobs, pool.map(check, *zip(*jobs, strict=True)), strict=True):
            for line in lines:
                print(f"rejected: {name}: {line}", file=sys.stderr)
            row = rows.setdefault(name, {"operation": name, "implementations": len(ways), "checked": 0, "rejected": 0})
            row["checked"] += seeds * len(ways)
            row["rejected"] += len(lines)
    whole = {key: sum(row[key] for row in rows.values()) for key in ("implementations", "checked", "rejected")}
    return [*rows.values(), {"operation": "all", **whole}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="the approximate number of faults")
    parser.add_argument("--quick", action="store_true", help="40 faults")
    parser.add_argument("--mutants", action="store_true", help="only check mutants of our kernels (about 4 minutes)")
    parser.add_argument("--seeds", type=int, help="only check correct implementations, with this number of seeds")
    parser.add_argument("--triton", action="store_true", help="with --seeds: the Triton kernels instead of all others")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes that check kernels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--session", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--problems", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session is not None:
        session(arguments.session, arguments.problems, arguments.seed)
        return
    began = time.monotonic()
    if arguments.seeds:
        import torch

        os.environ |= {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
        rows = measure_seeds(arguments.seeds, arguments.triton, arguments.processes)
        notes = [f"{torch.backends.cpu.get_cpu_capability()}, {time.monotonic() - began:.0f} s"]
        title = f"faults: correct implementations in the correctness check, {arguments.seeds} seeds"
        report(title, rows, as_json=arguments.json, notes=notes)
        raise SystemExit(bool(rows[-1]["rejected"]))
    if arguments.mutants:
        import torch

        where = torch.cuda.get_device_name() if torch.cuda.is_available() else "Triton's interpreter"
        if not torch.cuda.is_available():
            os.environ.setdefault("TRITON_INTERPRET", "1")
        rows = measure_mutants(arguments.processes)
        title = "faults: mutants of our Triton kernels in the correctness check"
        report(title, rows, as_json=arguments.json, notes=[f"{where}, {time.monotonic() - began:.0f} s"])
        raise SystemExit(bool(rows[-1]["not found"] or rows[-1]["rejected"]))
    rows = measure(40 if arguments.quick else arguments.count, arguments.seed)
    notes = [f"{time.monotonic() - began:.0f} s"]
    report("faults: tuning with candidates and processes that die", rows, as_json=arguments.json, notes=notes)
    raise SystemExit(any(row["bar"] == "0" and row["count"] for row in rows))


if __name__ == "__main__":
    main()
