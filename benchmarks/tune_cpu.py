"""Compares every operation, tuned on this CPU, with eager PyTorch and `torch.compile`: `python -m benchmarks.tune_cpu`.

First all operations are tuned, with a new store and table, unless `--table` names an existing table. Then the tuned
choice of every named shape is timed in turns with two rivals: `eager`, the usual PyTorch code (PyTorch's own function
if there is one, else products of matrices), and the same under `torch.compile`. The figures are ratios of samples from
the same round, with their interval. A shape counts as slower if the whole interval lies below 1 after subtracting the 5
microseconds that a look-up may take; the printed ratios include them. One in forty equal pairs looks slower by chance,
and the placement of memory and code in a process changes the time of equal code by up to 7 %. So a shape that looks
slower is compared again in three times as many rounds in a new process, and only that comparison counts. Notes say why
the tuner made the choices that are slower. The processes keep the memory that they free, as the tuner's do
(`tuner.measure.worker`). Compilation is not timed. A shape that takes longer than `--compile-seconds` to
compile has no figure, and a note says so.

    python -m benchmarks.tune_cpu [--effort quick] [--budget SECONDS] [--only softmax,rotary] [--threads N]
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from benchmarks.support.report import report
from kernels.dispatch import compiled, registry, tuned
from kernels.dispatch.registry import Operation, Problem
from nas.threads import checked_threads
from tuner.measure.interval import Interval
from tuner.measure.measure import LEAST_ROUNDS, ProcessorClock, Timing, compare, measure
from tuner.measure.worker import keep_freed_memory
from tuner.search.decision import Decision
from tuner.search.session import Report

EAGER = ("torch", "sdpa", "dense", "matmul")  # the implementations with PyTorch's own functions
ROUNDS, SECONDS, SAMPLE = 31, 0.8, 0.2  # of a comparison; milliseconds of a sample
AGAIN = 3  # times as many rounds, for a shape that looks slower
EPSILON = 1e-6
LOOKUP = 0.005  # milliseconds, the bar of benchmarks.lookup
Call = Callable[..., Any]


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, state: Tensor | None = None) -> Tensor:
    """As products of matrices, the usual code if T^2 scores fit in memory."""
    assert state is None
    weights = q @ k.transpose(2, 3)
    weights = weights.tril() if causal else weights
    return weights @ v / (weights.sum(3, keepdim=True) + EPSILON)


def decayed_linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, decay: Tensor | None = None, state: Tensor | None = None
) -> Tensor:
    """The same with decay: each key counts less after every step."""
    assert state is None
    weights = q @ k.transpose(2, 3)
    if decay is None:
        return weights.tril() @ v
    level = decay.cumsum(2)
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    left = (level[..., None] - level[:, :, None]).masked_fill(later, -math.inf).exp()
    return (weights * left) @ v


WRITTEN: dict[str, Call] = {each.__name__: each for each in (linear_attention, decayed_linear_attention)}


def eager(operation: Operation, problem: Problem) -> tuple[str, Call]:
    """The usual PyTorch code of an operation, with a name."""
    if operation.name in WRITTEN:
        return "products", WRITTEN[operation.name]
    able = operation.choices(problem)
    for name in EAGER:
        if name in able:
            return name, operation.implementations[name].call
    return "definition", operation.reference


def served(operation: Operation, problem: Problem) -> Call:
    """The call of an operation's launcher, which looks up the choice every time."""
    dtype = getattr(torch, problem.dtype)
    sizes, flags = (tuple(value for _, value in pairs) for pairs in (problem.sizes, problem.flags))

    def call(*args: Any, **kwargs: Any) -> Any:
        return tuned.implementation(operation, problem.device, dtype, sizes, flags, None)(*args, **kwargs)

    return call


def both_ways(call: Call, args: Any, kwargs: Any) -> Callable[[], object]:
    """One call, and its backward pass from the first output if an input requires a gradient."""
    leaves = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.requires_grad]
    if not leaves:
        return lambda: call(*args, **kwargs)
    weight = torch.randn_like(_first(call(*args, **kwargs)))
    return lambda: torch.autograd.grad(_first(call(*args, **kwargs)), leaves, weight, allow_unused=True)


def _first(outputs: Any) -> Tensor:
    return outputs if isinstance(outputs, Tensor) else outputs[0]


def rivals(operation: Operation, problem: Problem, limit: float) -> tuple[dict[str, Callable[[], object]], str]:
    """The calls `tuned`, `eager`, and `compiled` if it compiles within `limit` seconds; and why one is missing."""
    args, kwargs = operation.inputs(problem, 0)
    _, plain = eager(operation, problem)
    calls = {
        name: both_ways(call, args, kwargs) for name, call in (("tuned", served(operation, problem)), ("eager", plain))
    }
    try:
        with _within(limit):
            built = both_ways(compiled.compiled(plain).call, args, kwargs)
            built()
        return {**calls, "compiled": built}, ""
    except Exception as error:  # if the compiler fails, the other two are compared
        return calls, f"{type(error).__name__}: {error}".splitlines()[0][:80]


def compared(calls: dict[str, Callable[[], object]], seconds: float, rounds: int = ROUNDS) -> dict[str, Timing]:
    """Timings in turns; short calls are repeated, all of them equally often."""
    clock = ProcessorClock()
    once = min(min(clock.time(call) for _ in range(3)) for call in calls.values())
    times = math.ceil(SAMPLE / max(once, 1e-4)) if once < SAMPLE else 1
    several = {name: _repeated(call, times) for name, call in calls.items()}
    found = measure(several, repeats=rounds, least=LEAST_ROUNDS, budget_seconds=seconds, warmup=2, clock=clock)
    return {name: _each(each, times) for name, each in found.items()}


def _each(timing: Timing, times: int) -> Timing:
    samples = tuple(sample / times for sample in timing.samples)
    return Timing(timing.median / times, timing.low / times, timing.high / times, samples, timing.coverage)


def _repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(times):
            call()

    return call if times == 1 else repeat


def row(operation: Operation, label: str, problem: Problem, limit: float, seconds: float) -> dict[str, Any]:
    """One line of the report."""
    found, lacks = timed(operation, problem, limit, seconds)
    if is_slower(found):
        found, lacks = timed_elsewhere(operation, problem, limit, AGAIN * seconds, AGAIN * ROUNDS)
    choice = tuned.explain(operation, problem)
    line: dict[str, Any] = {
        "operation": operation.name,
        "shape": label,
        "choice": str(choice.choice),
        "why": choice.why,
    }
    line |= {"rival": eager(operation, problem)[0], "ms": found["tuned"].median}
    line["over_eager"] = compare(found["eager"], found["tuned"])
    line["over_compiled"] = compare(found["compiled"], found["tuned"]) if "compiled" in found else lacks
    line["slower"] = is_slower(found)
    return line


Timed = tuple[dict[str, Timing], str]  # by name, and why one is missing


def timed(operation: Operation, problem: Problem, limit: float, seconds: float, rounds: int = ROUNDS) -> Timed:
    """Timings of the rivals in turns."""
    calls, lacks = rivals(operation, problem, limit)
    return compared(calls, seconds, rounds), lacks


def timed_elsewhere(operation: Operation, problem: Problem, *arguments: Any) -> Timed:
    """The same in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=begin, initargs=(torch.get_num_threads(),)) as pool:
        return pool.submit(_timed_by_name, operation.name, problem, *arguments).result()


def _timed_by_name(name: str, *arguments: Any) -> Timed:
    return timed(registry.operation(name), *arguments)


def begin(threads: int) -> None:
    """Prepare a process that times."""
    torch.set_num_threads(checked_threads(threads))
    keep_freed_memory()  # as the tuner, and so that the first and the last shapes have the same state of the memory
    warnings.simplefilter("ignore")


def is_slower(found: dict[str, Timing]) -> bool:
    """Whether `tuned` takes longer than any rival."""
    return any(slower(found[name], found["tuned"]) for name in found if name != "tuned")


def slower(rival: Timing, ours: Timing) -> bool:
    """Whether ours takes longer than the rival by more than the noise and a look-up."""
    allowed = Timing(rival.median, rival.low, rival.high, tuple(sample + LOOKUP for sample in rival.samples))
    return compare(allowed, ours).high < 1


def measured(names: Iterable[str], limit: float, seconds: float) -> Iterator[dict[str, Any]]:
    """One line for every named shape, also printed to the terminal."""
    for name in names:
        operation = registry.operation(name)
        for label, problem in operation.problems("cpu").items():
            line = row(operation, label, problem, limit, seconds)
            print(f"{name} {label}: {line['choice']}: {_said(line['over_eager'])} eager", file=sys.stderr, flush=True)
            yield line


def summary(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means, and the shapes at which the choice is slower than a rival by more than the noise."""
    rows = []
    for against in ("over_eager", "over_compiled", "over_best"):
        ratios = {name: [] for name in dict.fromkeys(line["operation"] for line in lines)}  # type: ignore[var-annotated]
        for line in lines:
            if (ratio := _ratio(line, against)) is not None:
                ratios[line["operation"]].append(ratio)
        means = [_mean(some) for some in ratios.values() if some]
        if means:
            bar = 1.3 if against != "over_best" else ""
            rows.append(
                {
                    "what": f"geometric mean over operations, {against.removeprefix('over_')}",
                    "times": _mean(means),
                    "bar": bar,
                }
            )
    count = sum(line["slower"] for line in lines)
    return [*rows, {"what": "shapes slower than a rival by more than the noise", "times": count, "bar": 0}]


def _ratio(line: dict[str, Any], against: str) -> float | None:
    pair = [line["over_eager"], line["over_compiled"]]
    if against == "over_best":
        return min(each.median for each in pair if isinstance(each, Interval))
    found = line[against]
    return found.median if isinstance(found, Interval) else None


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _said(value: Any) -> str:
    return f"{value.median:.2f} [{value.low:.2f}, {value.high:.2f}]" if isinstance(value, Interval) else value


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"not compiled within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    # Again and again: Python drops an exception that is raised while it frees an object.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tuned_first(folder: Path, names: list[str], effort: str, budget: float | None, threads: int) -> Report:
    """Tune everything into a table in `folder` -> the report of the session."""
    from tuner import problems
    from tuner.search import tables
    from tuner.search.results import Results
    from tuner.search.session import tune

    os.environ[tuned.TABLES] = str(folder)
    wanted = problems.named([registry.operation(name) for name in names], "cpu")
    store = Results(folder / "measurements.db")
    found = tune(wanted, store=store, effort=effort, budget_seconds=budget, threads=threads)
    tables.update("cpu", found.decisions, threads)
    return found


def told(found: Report, effort: str) -> str:
    """The report of a session in words."""
    regret = "unknown" if found.regret is None else f"{found.regret - 1:.2%}"
    return (
        f"tuned {effort}: {found.measured} measurements in {found.seconds:.0f} s, {len(found.undecided)} of "
        f"{len(found.undecided) + len(found.decisions)} problems undecided, {found.unbuilt} without torch.compile, "
        f"selection regret {regret}"
    )


def reasons(lines: list[dict[str, Any]], decisions: Iterable[Decision]) -> list[str]:
    """Why the tuner made the choices that are slower, and which other candidates failed."""
    made = {each.problem: each for each in decisions}
    found = []
    for line in lines:
        decision = made.get(registry.operation(line["operation"]).problems("cpu")[line["shape"]])
        if line["slower"] and decision is not None:
            failed = "".join(f", {count} {kind}" for kind, count in decision.failures.items())
            found.append(f"{line['operation']} {line['shape']}: {decision.why}{failed}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--budget", type=float, help="seconds of tuning; default: the effort's budget")
    parser.add_argument("--only", help="operations, separated by commas; default: all")
    parser.add_argument("--table", type=Path, help="use this table and tune nothing")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--compile-seconds", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each comparison")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(registry.operations())
    begin(arguments.threads)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        if arguments.table is None:
            found = tuned_first(Path(name), names, arguments.effort, arguments.budget, arguments.threads)
            notes, decisions = [told(found, arguments.effort)], found.decisions
        else:
            os.environ[tuned.TABLES] = str(arguments.table)
            notes, decisions = [f"tuned before: {arguments.table}"], []
        tuned.use("cpu", None)
        lines = list(measured(names, arguments.compile_seconds, arguments.seconds))
    means = summary(lines)
    notes += [
        f"{each['what']}: {each['times']:.4g} (bar {each['bar'] or 'none' if each['bar'] != 0 else 0})"
        for each in means
    ]
    notes += reasons(lines, decisions)
    notes.append(f"{arguments.threads} threads, {time.monotonic() - began:.0f} s")
    shown = [
        {**line, "over_eager": _said(line["over_eager"]), "over_compiled": _said(line["over_compiled"])}
        for line in lines
    ]
    report("tune_cpu: speed-ups by tuning on this CPU", shown, as_json=arguments.json, notes=notes)


if __name__ == "__main__":
    main()
