"""The tables that `kernels.tuned` serves from: made from decisions beside what they held before, locked, verified."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels import registry, tuned
from kernels.registry import Choice, Problem
from kernels.tuned import Entry, Table
from tuner.children import Children
from tuner.decision import Decision
from tuner.device import fingerprint
from tuner.interval import Interval
from tuner.measure import compare, timing
from tuner.outcome import Outcome
from tuner.worker import Job, Settings

ROUNDS, SECONDS = 15, 0.5  # of a comparison with the default


def path_of(device: str) -> Path:
    """Where the table of this machine's device of that type is written, and looked for first."""
    folder = tuned.folders()[0]
    return folder if folder.suffix == ".json" else folder / f"{tuned.device_name(device)}.json"


def entries(decisions: Iterable[Decision]) -> list[Entry]:
    """What the decisions serve; a problem for which nothing is right is left to the default."""
    found = []
    for each in decisions:
        if each.choice is not None and each.milliseconds is not None:
            implementation = registry.operation(each.problem.operation).implementations[each.choice.implementation]
            found.append(Entry(each.problem, each.choice, each.milliseconds, implementation.source))
    return found


def update(device: str, decisions: Sequence[Decision], threads: int) -> tuple[Path, int]:
    """Write the decisions into the device's table; other entries stay while their source is -> its path and size."""
    path = path_of(device)
    decided = {each.problem for each in decisions}
    kept = [each for each in _there(path) if each.problem not in decided and _current(each)]
    new = sorted([*kept, *entries(decisions)], key=lambda each: str(each.problem))
    write(path, new, device=fingerprint(device).to_dict(), threads=threads)
    tuned.use(device.partition(":")[0], None)
    return path, len(new)


def write(path: Path, some: Iterable[Entry], **about: object) -> None:
    """A table file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(tuned.written(some, **about), encoding="utf-8")
    beside.replace(path)


def lock(device: str, path: Path, miss: str) -> int:
    """Freeze the device's table into a lock file; miss: `error` or `default` -> how many problems it holds."""
    found = tuned.table(device.partition(":")[0])
    frozen = [each for each in found.entries.values() if _current(each)]
    Table(frozen, miss)  # says what a miss may be
    write(path, frozen, miss=miss, device=fingerprint(device).to_dict())
    return len(frozen)


@dataclass(frozen=True)
class Verified:
    """ratio: how many times as long the choice takes as the default; None where it was not timed."""

    problem: Problem
    choice: Choice
    outcome: Outcome
    ratio: Interval | None

    @property
    def sound(self) -> bool:
        """Right, and not slower than the default by more than the noise."""
        return bool(self.outcome.samples) and (self.ratio is None or self.ratio.low <= 1)


def verify(device: str, some: Iterable[Entry], threads: int, load: Sequence[str] = (), seed: int = 1) -> list[Verified]:
    """Check every entry on new inputs and time it beside the default, in turns."""
    found = []
    with Children(Settings(device, threads, tuple(load))) as children:
        for entry in some:
            default = registry.operation(entry.problem.operation).default_choice(entry.problem)
            choices = (entry.choice,) if entry.choice == default else (entry.choice, default)
            outcomes = children.run(Job(entry.problem, choices, seed, ROUNDS, SECONDS))
            timed = len(outcomes) == 2 and all(each.samples for each in outcomes)
            ratio = compare(*(timing(each.samples) for each in outcomes)) if timed else None
            found.append(Verified(entry.problem, entry.choice, outcomes[0], ratio))
    return found


def _there(path: Path) -> list[Entry]:
    return list(tuned.read(path).entries.values()) if path.is_file() else []


def _current(entry: Entry) -> bool:
    """Whether the source that was measured is still there."""
    known = registry.operations().get(entry.problem.operation)
    implementation = known and known.implementations.get(entry.choice.implementation)
    return bool(implementation and implementation.source == entry.source)
