"""The problems that an architecture poses to the operations, and the choices that serve them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch import tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Problem, operation
from kernels.dispatch.table import LockedMiss
from nas.latency.profile import calls
from nas.store import Reader, Study
from searchspace.model.architecture import Architecture
from tuner import problems
from tuner.replay.recorded import load
from tuner.replay.replay import fraction_of_optimum, replay, score
from tuner.search.cache import cache_of, fastest, valid
from tuner.search.decision import Decision
from tuner.search.results import Results
from tuner.search.session import Report

LENGTH, BATCH = 128, 8


def problems_of(
    architectures: Iterable[Architecture], device: str, *, length: int = LENGTH, batch: int = BATCH
) -> dict[str, list[Problem]]:
    """The problems of all phases (prefill, decode and train step) of the architectures, by operation."""
    asked: dict[Problem, int] = {}
    for architecture in architectures:
        for problem, count in asked_by(architecture, length=length, batch=batch).items():
            asked[problem] = asked.get(problem, 0) + count
    return problems.on_device(asked, device)


def asked_by(architecture: Architecture, *, length: int, batch: int) -> dict[Problem, int]:
    """The problems of one architecture with their number of calls: prefill, decode and train step, run on the CPU."""
    with tuned.asked() as found:
        for call in calls(architecture, torch.device("cpu"), batch, length):
            call()
    return dict(found)


def served(asked: Iterable[Problem]) -> list[dict[str, Any]]:
    """The choice that serves each problem, and why, for a table or JSON."""
    return [served_row(problem) for problem in asked]


def served_row(problem: Problem) -> dict[str, Any]:
    """One row of `served`; the choice is None if a lock file refuses the problem."""
    known = operation(problem.operation)
    shown = " ".join(f"{name}={value}" for name, value in (*problem.sizes, *problem.flags))
    row: dict[str, Any] = {"operation": problem.operation, "dtype": problem.dtype, "problem": shown}
    missed = tuned.table(problem.device).missed
    try:
        found = tuned.explain(known, problem)
    except LockedMiss:
        row |= {"choice": None, "why": f"refused: {missed(known, problem)}", "milliseconds": None}
        return row | {"tuned": None}
    why = f"default: {missed(known, problem)}" if found.why == "default" else found.why
    near = found.tuned if found.why == "near" else None
    row |= {"choice": str(found.choice), "why": why, "milliseconds": found.milliseconds}
    return row | {"tuned": near and " ".join(f"{name}={value}" for name, value in near.sizes)}


def of_study(store: Reader, study: Study, limit: int | None = None) -> Sequence[Architecture]:
    """The different architectures of a study; at most those of `limit` trials."""
    texts = dict.fromkeys(trial.architecture for trial in store.trials(study.id, limit=limit))
    return [Architecture.parse(text, study.name) for text in texts]


def decision_row(decision: Decision) -> dict[str, Any]:
    """A decision for a table or JSON."""
    problem, gain = decision.problem, decision.gain
    return {
        "operation": problem.operation,
        "dtype": problem.dtype,
        "problem": " ".join(f"{name}={value}" for name, value in (*problem.sizes, *problem.flags)),
        "choice": None if decision.choice is None else str(decision.choice),
        "milliseconds": decision.milliseconds,
        "gain": None if gain is None else gain.median,
        "tried": decision.candidates,
        "failed": sum(decision.failures.values()),
        "regret": decision.regret,
        "why": decision.why,
    }


def report_dict(report: Report) -> dict[str, Any]:
    """The report of a session as plain data."""
    return {
        "device": report.device.to_dict(),
        "threads": report.threads,
        "measured": report.measured,
        "seconds": report.seconds,
        "interrupted": report.interrupted,
        "unbuilt": report.unbuilt,
        "killed": {"processes": report.killed, "seconds": report.killed_seconds},
        "regret": report.regret,
        "decisions": [{**decision_row(each), "failures": dict(each.failures)} for each in report.decisions],
        "undecided": [str(each) for each in report.undecided],
    }


def explained(store: Results, some: Iterable[Problem], device: str, threads: int | None) -> list[dict[str, Any]]:
    """For each problem the choice that serves it and why, then its measurements, fastest first, failures last."""
    here, threads = fingerprint(device), threads or torch.get_num_threads()
    rows = []
    for problem in some:
        row = served_row(problem)
        rows.append({**row, "serves": True})
        known = cache_of(store, operation(problem.operation), here, threads).known(problem)
        times = valid(known)
        for choice in [*fastest(times, len(times)), *(choice for choice in known if choice not in times)]:
            each = known[choice]
            why = each.outcome.kind.value + (f": {each.outcome.message}" if each.outcome.message else "")
            measured = {"choice": str(choice), "why": why, "milliseconds": each.milliseconds}
            rows.append({**row, **measured, "tuned": None, "loss": None, "serves": False})
    return rows


def replayed(file: Path, names: Iterable[str], evaluations: int, seeds: int) -> list[dict[str, Any]]:
    """Each strategy's mean fraction of the optimum on a recorded space, and its score relative to random search."""
    recorded = load(file)
    rows = []
    for name in names:
        runs = [replay(recorded, name, evaluations, seed) for seed in range(seeds)]
        found = [fraction_of_optimum(recorded, run, evaluations) for run in runs]
        improvement, error = score(recorded, runs, evaluations)
        mean = sum(found) / len(found)
        scores = {"of_optimum": mean, "over_random": improvement, "error": error}
        rows.append({"strategy": name, "evaluations": evaluations, **scores})
    return rows
