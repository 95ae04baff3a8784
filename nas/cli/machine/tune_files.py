"""nas tune verify, lock, export, import, replay: check tuned choices and carry them between machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.machine.tune import (
    Load,
    Measurements,
    Name,
    Threads,
    ValueErrors,
    entries_of,
    kind_of,
    problems_of,
    registered,
    tune_app,
)
from nas.cli.options import AsJson, Device
from nas.cli.output import note, print_json, print_rows, say
from nas.errors import UsageError
from searchspace.wording import plural

if TYPE_CHECKING:
    from kernels.dispatch.table import Table
    from tuner.search.tables import Verified


def _file(help_: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar="FILE", help=help_, show_default=False)


@tune_app.command()
def verify(
    operation: Name = "all",
    device: Device = "cpu",
    problems: Annotated[
        Path | None, typer.Option(help="A list of problems. Default: all that the table holds.", show_default=False)
    ] = None,
    threads: Threads = None,
    load: Load = None,
    storage: Measurements = None,
    as_json: AsJson = False,
) -> None:
    """Check the choices in the table on new inputs, and time them against the defaults.

    Choices that were measured elsewhere, such as with another driver, are used from then on if they pass. If a choice
    is wrong or crashes, the default is used instead. After an interrupt, this holds for the choices that were already
    checked. The exit code is 1 if a choice is wrong, or slower than its default.

    Example: nas tune verify all
    """
    import torch

    from kernels.dispatch import tuned
    from tuner.search import tables

    registered(load)
    with ValueErrors():
        table = tuned.table(kind_of(device))
        remembered = [Path(file) for file in table.about["load"]] if table.about and not load else []
        for file in remembered:
            if not file.is_file():
                note(f"{file}, which the table was made with, is not there: its operations are unknown.")
        load = load or [file for file in remembered if file.is_file()]
        registered(load)
        some = entries_of(table, operation)
        if problems is not None:
            wanted = problems_of(operation, device, problems, None, None, 1, 1, None)
            asked = {problem for each in wanted.values() for problem in each}
            some = [each for each in some if each.problem in asked]
            if absent := len(asked) - len(some):
                note(f"{problems}: the table does not hold {plural(absent, 'problem')} of them.")
        threads = threads or torch.get_num_threads()
        found: list[Verified] = []
        try:
            for each in tables.verify(device, some, threads, [str(path) for path in load or ()]):
                found.append(each)
                note(f"{len(found)}/{len(some)}: {each.problem}: {each.choice}: {each}")
        finally:  # an interrupt or a killed process loses nothing that was found
            none = f"The table has {plural(len(table.entries), 'problem')}, but none of these."
            if some:
                none = "Interrupted before the first choice was checked."
            elif not table.entries:
                none = f"There is no table for this {kind_of(device)}."
            _print_verified(found, as_json, none)
            _keep_verified(device, found, threads, storage, table)
    if not all(each.sound for each in found):
        raise typer.Exit(1)


def _print_verified(found: list[Verified], as_json: bool, empty: str) -> None:
    rows = [
        {
            "problem": str(each.problem),
            "choice": str(each.choice),
            "outcome": each.outcome.kind.value,
            "message": each.message or None,
            "times_default": each.ratio and each.ratio.median,
            "low": each.ratio and each.ratio.low,
            "high": each.ratio and each.ratio.high,
            "sound": each.sound,
        }
        for each in found
    ]
    print_rows(rows, as_json, empty=empty)


def _keep_verified(device: str, found: list[Verified], threads: int, storage: str | None, table: Table) -> None:
    """Use correct choices and reject the others. table: where they come from."""
    from tuner.outcome import Kind
    from tuner.search import tables
    from tuner.search.results import results_at

    adopted = tables.adopt(device, found, threads)
    rejected = tables.reject(device, found, threads, results_at(storage))
    if adopted:
        note(f"{plural(adopted, 'choice')} from elsewhere or of earlier code: correct here, and used from now on.")
    if rejected:
        note(f"{plural(rejected, 'choice')} gave wrong results here, or crashed; `nas tune` finds others.")
        note(f"{table.origin} still serves them." if table.locked else "The default serves.")
    if wrong := sum((each.default or each.outcome).kind is Kind.WRONG for each in found):
        note(f"The default of {plural(wrong, 'problem')} is wrong here. It serves what is not tuned.")
    if table.locked and (adopted or rejected):
        note("A lock file is never changed: unset $NAS_KERNEL_LOCK, and lock again with `nas tune lock`.")


@tune_app.command()
def lock(
    file: Annotated[Path, _file("The lock file to write.")],
    device: Device = "cpu",
    miss: Annotated[
        str, typer.Option(help="For a problem that is not in FILE: error, or default (use the default choice).")
    ] = "error",
    as_json: AsJson = False,
) -> None:
    """Freeze the table of DEVICE in a file: with $NAS_KERNEL_LOCK=FILE every process uses exactly these choices.

    Example: nas tune lock kernels.lock.json --miss default
    """
    from tuner.search import tables

    with ValueErrors():
        count = tables.lock(device, file, miss)
    print_json({"file": str(file), "problems": count}) if as_json else say(f"{file}: {plural(count, 'problem')}")


@tune_app.command("export")
def export_(
    file: Annotated[Path, _file("A SQLite file; measurements that it lacks are added to it.")],
    operation: Name = "all",
    storage: Measurements = None,
    as_json: AsJson = False,
) -> None:
    """Write all measurements of OPERATION to FILE, to carry them to another machine.

    They include those of your own Triton kernels (`@tuner.tune`, `tuner.listen`), under MODULE.FUNCTION.

    Example: nas tune export measurements.db
    """
    from nas.registry import nearest
    from tuner.search.results import Results, copied, results_at

    source, wanted = results_at(storage), None if operation == "all" else operation
    if wanted is not None and not source.rows(wanted):
        known = sorted({row.operation for row in source.rows()})
        some = f" Known: {', '.join(known)}." if known else ""
        raise UsageError(f"There are no measurements of {wanted!r}.{nearest(wanted, known)}{some}")
    count = copied(source, Results(file), wanted)
    print_json({"file": str(file), "measurements": count}) if as_json else say(f"{file}: {count} measurements")


@tune_app.command("import")
def import_(
    file: Annotated[Path, _file("A file that `nas tune export` wrote, or any other database.")],
    storage: Measurements = None,
    as_json: AsJson = False,
) -> None:
    """Add the measurements in FILE that are new; those of other devices guide a search on this one.

    Example: nas tune import measurements.db
    """
    from tuner.search.results import Results, copied, results_at

    if not file.is_file():
        raise UsageError(f"There is no file {file}.")
    count = copied(Results(file), results_at(storage))
    print_json({"file": str(file), "new": count}) if as_json else say(f"{file}: {count} new measurements")


@tune_app.command()
def replay(
    file: Annotated[Path, _file("A recorded space: gzipped JSON in the format of Kernel Tuner's caches.")],
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="A strategy; may be repeated. Default: surrogate, local_search, random.", show_default=False),
    ] = None,
    evaluations: Annotated[int, typer.Option(min=1, help="Configurations to measure in each run.")] = 100,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each strategy.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Run tuning strategies on a fully measured space, and show how close they come to its optimum.

    Example: nas tune replay gemm_a100.json.gz --evaluations 50
    """
    from nas import tuning

    with ValueErrors():
        rows = tuning.replayed(file, strategy or ["surrogate", "local_search", "random"], evaluations, seeds)
    print_rows(rows, as_json)
