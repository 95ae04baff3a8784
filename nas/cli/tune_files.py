"""nas tune verify, lock, export, import, replay: what was tuned, checked and carried between machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.options import AsJson, Device, Storage
from nas.cli.output import print_json, print_rows
from nas.cli.tune import Load, Name, Threads, ValueErrors, kind_of, opened, registered, tune_app


def _file(help_: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar="FILE", help=help_, show_default=False)


@tune_app.command()
def verify(
    operation: Name = "all",
    device: Device = "cpu",
    threads: Threads = None,
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Check what the table serves on new inputs, and time it beside the defaults. Exit code 1 if anything is worse.

    Example: nas tune verify all
    """
    import torch

    from kernels import tuned
    from tuner import tables

    registered(load)
    with ValueErrors():
        entries = tuned.table(kind_of(device)).entries.values()
        some = [each for each in entries if operation in ("all", each.problem.operation)]
        found = tables.verify(device, some, threads or torch.get_num_threads(), [str(path) for path in load or ()])
    rows = [
        {
            "problem": str(each.problem),
            "choice": str(each.choice),
            "outcome": each.outcome.kind.value,
            "message": each.outcome.message or None,
            "times_default": each.ratio and each.ratio.median,
            "low": each.ratio and each.ratio.low,
            "high": each.ratio and each.ratio.high,
            "sound": each.sound,
        }
        for each in found
    ]
    print_rows(rows, as_json, empty="The table is empty.")
    if not all(each.sound for each in found):
        raise typer.Exit(1)


@tune_app.command()
def lock(
    file: Annotated[Path, _file("The lock file to write.")],
    device: Device = "cpu",
    miss: Annotated[str, typer.Option(help="What a problem that it lacks gets: default, or error.")] = "error",
    as_json: AsJson = False,
) -> None:
    """Freeze the table of DEVICE: with $NAS_KERNEL_LOCK=FILE every process is served the same, and nothing else.

    Example: nas tune lock kernels.lock.json --miss default
    """
    from tuner import tables

    with ValueErrors():
        count = tables.lock(device, file, miss)
    print_json({"file": str(file), "problems": count}) if as_json else print(f"{file}: {count} problems")


@tune_app.command("export")
def export_(
    file: Annotated[Path, _file("JSON lines; gzipped if the name ends in .gz.")],
    operation: Name = "all",
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write all measurements to FILE, to carry them to another machine.

    Example: nas tune export measurements.jsonl.gz
    """
    from tuner import exchange

    with opened(storage) as store:
        count = exchange.export(store, file, None if operation == "all" else operation)
    print_json({"file": str(file), "measurements": count}) if as_json else print(f"{file}: {count} measurements")


@tune_app.command("import")
def import_(
    file: Annotated[Path, _file("What `nas tune export` wrote.")],
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Add the measurements in FILE that are not known yet; those of other devices guide a search on this one.

    Example: nas tune import measurements.jsonl.gz
    """
    from tuner import exchange

    with opened(storage) as store, ValueErrors():
        count = exchange.import_(store, file)
    print_json({"file": str(file), "new": count}) if as_json else print(f"{file}: {count} new measurements")


@tune_app.command()
def replay(
    file: Annotated[Path, _file("A recorded space, gzipped JSON as Kernel Tuner caches are.")],
    strategy: Annotated[
        list[str] | None, typer.Option(help="A strategy; may be repeated. Default: some.", show_default=False)
    ] = None,
    evaluations: Annotated[int, typer.Option(min=1, help="How many configurations are tried.")] = 100,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each strategy.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Run search strategies on a space that was measured in full, and say how near they come to its optimum.

    Example: nas tune replay gemm_a100.json.gz --evaluations 50
    """
    from nas import tuning

    with ValueErrors():
        rows = tuning.replayed(file, strategy or ["surrogate", "local_search", "random"], evaluations, seeds)
    print_rows(rows, as_json)
