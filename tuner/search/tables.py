"""Writes, locks and verifies the tables that `kernels.dispatch.tuned` looks choices up in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout  # torch needs it, so it is on every machine with torch

from kernels.dispatch import registry, table, tuned
from kernels.dispatch.device import Device, fingerprint
from kernels.dispatch.registry import Choice, Problem
from kernels.dispatch.table import Entry, Table, Where
from nas.errors import NasError
from nas.files import write_whole
from tuner.measure.children import Children
from tuner.measure.interval import Interval
from tuner.measure.measure import LEAST_ROUNDS, compare, timing
from tuner.measure.worker import Job, Settings
from tuner.outcome import Kind, Outcome
from tuner.search.cache import cache_of
from tuner.search.decision import Decision
from tuner.search.results import Results

log = logging.getLogger(__name__)

ROUNDS, SECONDS = 15, 0.5  # of a comparison with the default
PATIENCE = 60.0  # seconds to wait for another process that writes the table


def path_of(device: str) -> Path:
    """The table of this machine's device of that type: where it is written, and read first."""
    folder = tuned.folders()[0]
    return folder if folder.suffix == ".json" else folder / f"{tuned.device_name(device)}.json"


def place(device: str, threads: int) -> Where:
    """Where this process measures."""
    return Where(fingerprint(device).key, threads if device == "cpu" else None)


def update(device: str, decisions: Sequence[Decision], threads: int, load: Iterable[str] = ()) -> tuple[Path, int]:
    """Write decisions into the device's table -> its path and its number of entries.

    A problem without a correct candidate has no entry, so its default serves. Entries of other problems are kept if
    their source is still valid, and so is what was measured elsewhere. load: files that register operations, which the
    table remembers. Several processes may do this at once.
    """
    decided, here = {each.problem for each in decisions}, place(device, threads)
    new = [
        Entry(each.problem, each.choice, each.milliseconds, _source(each.problem, each.choice), here)
        for each in decisions
        if each.choice is not None and each.milliseconds is not None
    ]
    return change(device, threads, lambda before: new, lambda entry: entry.problem in decided, load)


def change(
    device: str,
    threads: int,
    new: Callable[[Table], Sequence[Entry]],
    drops: Callable[[Entry], bool],
    load: Iterable[str] = (),
) -> tuple[Path, int]:
    """Add entries to the device's table, and drop those of this place that they replace.

    new: makes the entries from the table as it is now, which another process may have changed. Raises NasError if
    another process holds the table for long.
    """
    here, path = fingerprint(device), path_of(device)
    there = place(device, threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), PATIENCE):
            before = _before(path, here, there)
            kept = [each for each in before.all if _current(each) and not (before.is_here(each) and drops(each))]
            whole = sorted([*kept, *new(before)], key=lambda each: str(each.problem))
            devices = [each for key, each in before.about.get("devices", {}).items() if key != here.key]
            about: dict[str, Any] = {"device": here.to_dict(), "threads": threads}
            about |= {"devices": devices} if devices else {}
            files = sorted({*before.about.get("load", []), *(str(Path(each).resolve()) for each in load)})
            about |= {"load": files} if files else {}
            # This file is not named by the user. A link in its place, from a manager of settings, is kept.
            write(path.resolve(), whole, **about)
    except Timeout:
        raise NasError(f"Another process has been writing {path} for {PATIENCE:.0f} s: it is unchanged.") from None
    tuned.use(device.partition(":")[0], None)
    return path, len({each.problem for each in whole if each.where is None or each.where.is_same(there)})


def _before(path: Path, here: Device, there: Where) -> Table:
    """The table that is changed. One that is damaged is put aside: what it held may be lost, what is new is not."""
    if not path.is_file():
        return Table(here=there)
    try:
        return table.read(path, here, there.threads)
    except ValueError as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        log.warning("%s. It is now %s, and a new table begins.", error, aside)
        return Table(here=there)


def write(path: Path, some: Iterable[Entry], **about: Any) -> None:
    """Write a table file: whole or not at all. Raises what `nas.files.writing` raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.written(some, **about).encode())


def lock(device: str, path: Path, miss: str) -> int:
    """Freeze the device's table into a lock file; miss: `error` or `default` -> its number of problems.

    Raises ValueError for another `miss`, and if there is no table.
    """
    Table(miss=miss)  # raises for an invalid miss
    found = tuned.table(device.partition(":")[0])
    frozen = [each for each in found.entries.values() if found.is_here(each) and _current(each)]
    if not frozen:
        raise ValueError(f"There is nothing to lock: no table serves {device}. Make one with `nas tune run all`.")
    about: dict[str, Any] = {"miss": miss, "device": fingerprint(device).to_dict()}
    about |= {"threads": torch.get_num_threads()} if device == "cpu" else {}
    write(path, frozen, **about)
    return len(frozen)


@dataclass(frozen=True)
class Verified:
    """ratio: the choice's time relative to the default's; None if it was not timed. default: how that of the default
    ended, None if the choice is the default."""

    entry: Entry
    outcome: Outcome
    ratio: Interval | None
    default: Outcome | None = None

    @property
    def problem(self) -> Problem:
        return self.entry.problem

    @property
    def choice(self) -> Choice:
        return self.entry.choice

    @property
    def sound(self) -> bool:
        """Whether it is correct, and not slower than the default by more than the noise."""
        return bool(self.outcome.samples) and (self.ratio is None or self.ratio.low <= 1)

    @property
    def rejected(self) -> bool:
        """Whether it must not serve: its result is wrong, it crashes, or its compiler rejects it."""
        return self.outcome.kind in (Kind.WRONG, Kind.CRASHED, Kind.BUILD_ERROR)

    @property
    def message(self) -> str:
        """What went wrong, with the choice or with the default; empty if nothing did."""
        if self.default is None or self.default.samples:
            return self.outcome.message
        return "; ".join(filter(None, [self.outcome.message, f"the default: {_failure(self.default)}"]))

    def __str__(self) -> str:
        if not self.outcome.samples:
            return _failure(self.outcome)
        if self.ratio is not None:
            return f"correct, {self.ratio.median:.2f} times the default's time"
        return f"correct; {self.message}" if self.message else "correct"


def _failure(outcome: Outcome) -> str:
    return f"{outcome.kind.value}: {outcome.message}"


def verify(
    device: str, some: Iterable[Entry], threads: int, load: Sequence[str] = (), seed: int = 1
) -> Iterator[Verified]:
    """Check every entry on new inputs, and time it in turns with the default. An entry is done when it is asked for."""
    with Children(Settings(device, threads, tuple(load))) as children:
        for entry in some:
            try:
                default = registry.operation(entry.problem.operation).default_choice(entry.problem)
            except (ValueError, KeyError) as error:  # it is not registered any more, or has other sizes and flags
                yield Verified(entry, Outcome(Kind.REFUSED, message=str(error.args[0])), None)
                continue
            choices = (entry.choice,) if entry.choice == default else (entry.choice, default)
            outcomes = children.run(Job(entry.problem, choices, seed, ROUNDS, SECONDS, least=LEAST_ROUNDS))
            timed = len(outcomes) == 2 and all(each.samples for each in outcomes)
            ratio = compare(*(timing(each.samples) for each in outcomes)) if timed else None
            yield Verified(entry, outcomes[0], ratio, *outcomes[1:])


def adopt(device: str, found: Sequence[Verified], threads: int) -> int:
    """Accept the sound choices that were measured elsewhere, or before their code changed, so that they serve here ->
    their number.
    """
    here = place(device, threads)
    new = [
        replace(
            each.entry,
            milliseconds=timing(each.outcome.samples).median,
            source=_source(each.problem, each.choice),
            where=here,
            checked=True,
        )
        for each in found
        if each.sound and each.entry.where is not None and not (each.entry.where.is_same(here) and _current(each.entry))
    ]
    if new:
        problems = {each.problem for each in new}
        change(device, threads, lambda before: new, lambda entry: entry.problem in problems)
    return len(new)


def reject(device: str, found: Sequence[Verified], threads: int, results: Results) -> int:
    """Remove the choices that must not serve, and record that in the store, so that no later session decides for them
    -> the number of these choices. The default becomes the choice of each of their problems. Otherwise the choice of a
    near problem would serve, which may be the same one.
    """
    wrong = [each for each in found if each.rejected]
    some = {(each.problem, each.choice) for each in wrong}
    if some:
        here = place(device, threads)
        change(
            device,
            threads,
            lambda before: _defaults(wrong, before, here),
            lambda entry: (entry.problem, entry.choice) in some,
        )
    for each in wrong:
        cache = cache_of(results, registry.operation(each.problem.operation), fingerprint(device), threads)
        cache.write(each.problem, {each.choice: each.outcome})
    return len(wrong)


def _defaults(wrong: Sequence[Verified], before: Table, here: Where) -> list[Entry]:
    """An entry with the default for each of the problems, unless another process has decided for another choice."""
    new = []
    for each in wrong:
        now = before.entries.get(each.problem)
        decided = now is not None and before.is_here(now) and now.choice != each.choice
        if not decided and each.default is not None and each.default.samples:
            choice = registry.operation(each.problem.operation).default_choice(each.problem)
            milliseconds = timing(each.default.samples).median
            new.append(Entry(each.problem, choice, milliseconds, _source(each.problem, choice), here))
    return new


def _source(problem: Problem, choice: Choice) -> str:
    """The hash of the implementation's code as it is now."""
    return registry.operation(problem.operation).implementations[choice.implementation].source


def _current(entry: Entry) -> bool:
    """Whether the implementation still has the source that was measured."""
    known = registry.operations().get(entry.problem.operation)
    implementation = known and known.implementations.get(entry.choice.implementation)
    return bool(implementation and entry.source == implementation.source)
