"""Writes, locks and verifies the tables that `kernels.dispatch.tuned` looks choices up in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.dispatch import registry, table, tuned
from kernels.dispatch.registry import Choice, Problem
from kernels.dispatch.sources import valid
from kernels.dispatch.table import Bucket, Entry, Table
from nas.files import write_whole
from tuner.device import fingerprint
from tuner.measure.children import Children
from tuner.measure.interval import Interval
from tuner.measure.measure import compare, timing
from tuner.measure.worker import Job, Settings
from tuner.outcome import Outcome
from tuner.search.decision import Decision

ROUNDS, SECONDS = 15, 0.5  # of a comparison with the default


def path_of(device: str) -> Path:
    """The table of this machine's device of that type: where it is written, and read first."""
    folder = tuned.folders()[0]
    return folder if folder.suffix == ".json" else folder / f"{tuned.device_name(device)}.json"


def entries(decisions: Iterable[Decision]) -> list[Entry]:
    """The entries of decisions; a problem without a correct candidate has none, so its default serves."""
    found = []
    for each in decisions:
        if each.choice is not None and each.milliseconds is not None:
            implementation = registry.operation(each.problem.operation).implementations[each.choice.implementation]
            found.append(Entry(each.problem, each.choice, each.milliseconds, implementation.source))
    return found


def update(
    device: str, decisions: Sequence[Decision], threads: int, buckets: Sequence[Bucket] = ()
) -> tuple[Path, int]:
    """Write decisions and buckets into the device's table -> its path and its number of entries.

    Entries of other problems are kept if their source is still valid, and so are buckets of other kinds of problems.
    """
    path = path_of(device)
    before = table.read(path) if path.is_file() else Table()
    decided = {each.problem for each in decisions}
    kept = [each for each in before.entries.values() if each.problem not in decided and _current(each)]
    new = sorted([*kept, *entries(decisions)], key=lambda each: str(each.problem))
    kinds = {table.kind(each.problems[0]) for each in buckets}
    others = [each for each in before.buckets if table.kind(each.problems[0]) not in kinds and _bucket_current(each)]
    some = sorted([*others, *buckets], key=lambda each: str((each.problems[0], each.choice)))
    # This file is not named by the user. A link in its place, from a manager of settings, is kept.
    write(path.resolve(), new, some, device=fingerprint(device).to_dict(), threads=threads)
    tuned.use(device.partition(":")[0], None)
    return path, len(new)


def write(path: Path, some: Iterable[Entry], buckets: Iterable[Bucket] = (), **about: object) -> None:
    """Write a table file: whole or not at all. Raises what `nas.files.writing` raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.written(some, buckets, **about).encode())


def lock(device: str, path: Path, miss: str) -> int:
    """Freeze the device's table into a lock file; miss: `error` or `default` -> its number of problems.

    Raises ValueError for another `miss`, and if there is no table.
    """
    Table(miss=miss)  # raises for an invalid miss
    found = tuned.table(device.partition(":")[0])
    frozen = [each for each in found.entries.values() if _current(each)]
    if not frozen:
        raise ValueError(f"There is nothing to lock: no table serves {device}. Make one with `nas tune run all`.")
    some = [each for each in found.buckets if _bucket_current(each)]
    write(path, frozen, some, miss=miss, device=fingerprint(device).to_dict())
    return len(frozen)


@dataclass(frozen=True)
class Verified:
    """ratio: the choice's time relative to the default's; None if it was not timed."""

    problem: Problem
    choice: Choice
    outcome: Outcome
    ratio: Interval | None

    @property
    def sound(self) -> bool:
        """Whether it is correct, and not slower than the default by more than the noise."""
        return bool(self.outcome.samples) and (self.ratio is None or self.ratio.low <= 1)


def verify(device: str, some: Iterable[Entry], threads: int, load: Sequence[str] = (), seed: int = 1) -> list[Verified]:
    """Check every entry on new inputs, and time it in turns with the default."""
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


def _current(entry: Entry) -> bool:
    """Whether the implementation still has the source that was measured."""
    known = registry.operations().get(entry.problem.operation)
    implementation = known and known.implementations.get(entry.choice.implementation)
    return bool(implementation and valid(entry.source, implementation))


def _bucket_current(bucket: Bucket) -> bool:
    return _current(Entry(bucket.problems[0], bucket.choice, 0.0, bucket.source))
