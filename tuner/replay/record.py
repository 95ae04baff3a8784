"""Records whole tuning spaces on this device, to evaluate strategies without it: `python -m tuner.replay.record`.

Every configuration of every implementation with a small enough space is checked and timed in a child process, and all
samples are kept. Each space becomes a file that `tuner.replay.recorded` reads. Until it is complete, the file has
another name, and the same command continues where the last one ended.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch import registry
from kernels.dispatch.device import Device, fingerprint
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem
from nas.files import write_whole
from tuner import problems
from tuner.measure.children import Children
from tuner.measure.measure import timing
from tuner.measure.worker import Job, Settings
from tuner.outcome import Kind, Outcome
from tuner.search import candidates
from tuner.space import TuningSpace

FEWEST, MOST = 4, 400  # a space is recorded if its number of configurations is between these
SAMPLES, SECONDS = 32, 3.0  # of each configuration, and the most time they may take
FOLDER = Path("records")
PARTIAL = ".partial.gz"  # the end of the name of a file that lacks some configurations
BETWEEN = 5.0  # seconds between two writes of a space, which a process that is killed loses at most


@dataclass(frozen=True)
class Space:
    """The space of one implementation on one problem, on a device."""

    operation: Operation
    implementation: Implementation
    problem: Problem
    space: TuningSpace
    device: Device

    @property
    def name(self) -> str:
        """The name of its file: operation, implementation, problem and device."""
        sizes = "_".join(f"{name}{value}" for name, value in (*self.problem.sizes, *self.problem.flags))
        text = f"{self.problem.operation} {self.implementation.name} {self.problem.dtype} {sizes} {self.device.name}"
        return "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in text)

    @property
    def about(self) -> dict[str, Any]:
        """What a record is valid for."""
        return {
            "operation": self.operation.name,
            "implementation": self.implementation.name,
            "problem": problems.as_row(self.problem),
            "source": self.implementation.source,
            "device": self.device.to_dict(),
        }

    def choices(self) -> dict[str, Choice]:
        """Every configuration, by its key in Kernel Tuner's format: its values in order."""
        found = {}
        for number in range(len(self.space)):
            configuration = self.space.configuration(number)
            key = ",".join(map(str, configuration.values()))
            found[key] = candidates.choice(self.implementation, configuration)
        return found


@dataclass(frozen=True)
class Report:
    """whole: spaces that have a file. left: configurations still to measure. measured: by this call."""

    whole: list[str]
    left: int
    measured: int
    seconds: float


def spaces(wanted: Iterable[Problem], device: Device, most: int = MOST) -> list[Space]:
    """The spaces of the problems that are small enough, the smallest first."""
    found = []
    for problem in wanted:
        operation = registry.operation(problem.operation)
        for implementation in candidates.implementations(operation, problem):
            space = candidates.space(implementation, problem)
            if space is not None and FEWEST <= len(space) <= most:
                found.append(Space(operation, implementation, problem, space, device))
    return sorted(found, key=lambda each: (len(each.space), each.name))


def record(
    wanted: Iterable[Problem],
    *,
    device: str = "cuda",
    folder: Path = FOLDER,
    budget_seconds: float = 540.0,
    most: int = MOST,
    samples: int = SAMPLES,
    threads: int | None = None,
    load: Sequence[str] = (),
    report: Callable[[str], None] = lambda line: None,
) -> Report:
    """Record the spaces of `wanted` that are not recorded yet, until the time is up; `report` gets the progress."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    every = spaces(wanted, fingerprint(device), most)
    whole, left, measured = [], 0, 0
    with Children(Settings(device, threads or torch.get_num_threads(), tuple(load))) as children:
        for number, space in enumerate(every, 1):
            known = _known(folder, space)
            missing = {key: choice for key, choice in space.choices().items() if key not in known}
            written = time.monotonic()
            try:
                for key, choice in missing.items():
                    if time.monotonic() - began > budget_seconds:
                        break
                    (outcome,) = children.run(Job(space.problem, (choice,), 0, samples, SECONDS))
                    known[key] = _record(space, choice, outcome)
                    measured += 1
                    if time.monotonic() - written > BETWEEN:
                        _write(folder, space, known)
                        written = time.monotonic()
            finally:
                if missing and known:
                    _write(folder, space, known)
            left += len(space.space) - len(known)
            if len(known) == len(space.space):
                whole.append(space.name)
                report(f"{number}/{len(every)} {space.name}: {len(space.space)} configurations")
    return Report(whole, left, measured, time.monotonic() - began)


def _file(folder: Path, space: Space, suffix: str = ".json.gz") -> Path:
    return folder / f"{space.name}{suffix}"


def _known(folder: Path, space: Space) -> dict[str, Any]:
    """The records of a space, by key, that are valid for this code and device."""
    for suffix in (".json.gz", PARTIAL):
        with suppress(OSError, EOFError, ValueError, KeyError, TypeError):
            data = json.loads(gzip.decompress(_file(folder, space, suffix).read_bytes()))
            same = data["about"]["source"] == space.implementation.source
            if same and data["about"]["device"]["key"] == space.device.key:
                return {key: each for key, each in data["cache"].items() if key in space.choices()}
    return {}


def _record(space: Space, choice: Choice, outcome: Outcome) -> dict[str, Any]:
    configuration = dict(choice.configuration)
    values = {name: configuration[name] for name in space.space.parameters}
    common = {**values, "compile_time": outcome.seconds * 1e3}
    if outcome.kind is Kind.TIMED and outcome.samples:
        return {**common, "time": timing(outcome.samples).median, "times": list(outcome.samples)}
    return {**common, "time": outcome.kind.value, "message": outcome.message}


def _write(folder: Path, space: Space, known: dict[str, Any]) -> None:
    """Write the records of a space, in their order; a file with all of them has another name."""
    data = {
        "kernel_name": space.operation.name,
        "device_name": space.device.name,
        "about": space.about,
        "time_unit": "milliseconds",
        "tune_params_keys": list(space.space.parameters),
        "tune_params": {name: list(values) for name, values in space.space.parameters.items()},
        "cache": {key: known[key] for key in space.choices() if key in known},
    }
    is_whole = len(known) == len(space.space)
    packed = gzip.compress(json.dumps(data).encode())
    write_whole(_file(folder, space, ".json.gz" if is_whole else PARTIAL), packed)
    if is_whole:
        _file(folder, space, PARTIAL).unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tuner.replay.record", description=str(__doc__).splitlines()[0])
    parser.add_argument("operations", nargs="*", default=["all"], help="names of operations; default: all of them")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument(
        "--problems", type=Path, help="a file with a list of problems; default: the named problems of the operations"
    )
    parser.add_argument("--budget", type=float, default=540.0, help="seconds")
    parser.add_argument("--most", type=int, default=MOST, help="larger spaces are skipped")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of each configuration")
    given = parser.parse_args(arguments)
    kind = given.device.partition(":")[0]
    try:
        known = registry.operations()
        some = known.values() if given.operations == ["all"] else map(registry.operation, given.operations)
        found = problems.load(given.problems, kind) if given.problems else problems.named(some, kind)
        wanted = [each for same in found.values() for each in same]
        report = record(
            wanted,
            device=given.device,
            folder=given.folder,
            budget_seconds=given.budget,
            most=given.most,
            samples=given.samples,
            report=lambda line: print(line, file=sys.stderr),
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(asdict(report) | {"folder": str(given.folder)}))
    if report.left:
        print(f"{report.left} configurations are left; the same command continues with them.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
