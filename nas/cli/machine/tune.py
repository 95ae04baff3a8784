"""nas tune: find the fastest implementation of each operation on a device, and show the results."""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from nas.cli.app import app
from nas.cli.options import MOST_SEED, AsJson, Device, threads_option
from nas.cli.output import note, print_json, print_rows
from nas.errors import NasError, UsageError
from searchspace.wording import plural

if TYPE_CHECKING:
    from kernels.dispatch.registry import Problem
    from kernels.dispatch.table import Entry, Table
    from tuner.search.session import Progress, Report


class _Run(typer.core.TyperGroup):
    """`nas tune attention` is short for `nas tune run attention`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


tune_app = typer.Typer(
    cls=_Run,
    help="Find the fastest implementation of an operation on a device; `nas tune NAME` is `nas tune run NAME`.",
    no_args_is_help=True,
)
app.add_typer(tune_app, name="tune")


def _operations(incomplete: str) -> list[str]:
    from kernels.dispatch import registry

    return [name for name in (*registry.operations(), "all") if name.startswith(incomplete)]


def operation_argument(help_: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar="OPERATION", help=help_, show_default=False, autocompletion=_operations)


Name = Annotated[str, operation_argument("An operation, or all.")]
Threads = Annotated[int | None, threads_option("CPU threads; default: torch's own.", show_default=False)]
Load = Annotated[
    list[Path] | None,
    typer.Option(help="A Python file that registers operations of your own; may be repeated.", show_default=False),
]

Measurements = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="The database with measurements, and with --study: postgresql://... or a SQLite file. "
        "Default: $NAS_STORAGE, else a file in your data folder.",
        show_default=False,
    ),
]


@tune_app.command()
def run(
    operation: Name,
    device: Device = "cpu",
    problems: Annotated[
        Path | None, typer.Option(help="A YAML or JSON list of problems to tune.", show_default=False)
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Tune the problems of this architecture.", show_default=False)
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Tune the problems of the architectures in this study.", show_default=False)
    ] = None,
    length: Annotated[int, typer.Option(min=1, help="Sequence length for --architecture and --study.")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="Batch size for --architecture and --study.")] = 8,
    effort: Annotated[str, typer.Option(help="none (decide from known measurements), quick or full.")] = "quick",
    budget: Annotated[
        str | None,
        typer.Option(help="Time for all problems: 90s, 10m, 2h. Default: the effort's budget.", show_default=False),
    ] = None,
    threads: Threads = None,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of the inputs and the search.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Measure everything again, also what failed before.")] = False,
    load: Load = None,
    storage: Measurements = None,
    as_json: AsJson = False,
) -> None:
    """Tune OPERATION, and write the winners into the table that serves this device.

    Known measurements are not repeated, and an interrupt loses none. In the printed table, `gain` is the time of the
    default divided by the time of the choice, empty if the default stays. `regret` is the estimated time of the choice
    divided by that of the best finalist.

    Example: nas tune run all --device cpu --effort quick
    """
    from tuner.search import tables
    from tuner.search.results import results_at
    from tuner.search.session import tune

    registered(load)
    files = [str(path) for path in load or ()]
    wanted = problems_of(operation, device, problems, architecture, study, length, batch, storage)
    with ValueErrors():
        report = tune(
            wanted,
            store=results_at(storage),
            device=device,
            effort=effort,
            budget_seconds=None if budget is None else max(seconds(budget) - since_start(), 0.0),
            again=again,
            seed=seed,
            threads=threads,
            load=files,
            listener=_print_progress,
        )
        path, entries = tables.update(device, report.decisions, report.threads, files)
    _print_report(report, path, entries, effort, as_json)
    if report.interrupted and not report.decisions:
        raise typer.Exit(1)


@tune_app.command()
def show(operation: Name = "all", device: Device = "cpu", as_json: AsJson = False) -> None:
    """Show the table that serves DEVICE: the tuned choices and their times.

    Example: nas tune show attention
    """
    from kernels.dispatch import tuned

    with ValueErrors():
        table = tuned.table(kind_of(device))
        some = entries_of(table, operation)
    rows = [
        {
            "operation": each.problem.operation,
            "dtype": each.problem.dtype,
            "problem": _sizes(each.problem),
            "choice": str(each.choice),
            "milliseconds": each.milliseconds,
        }
        for each in some
    ]
    note(
        table.origin
        or f"There is no table for this {kind_of(device)}; the defaults serve. Make one with `nas tune all`."
    )
    print_rows(rows, as_json)


@tune_app.command()
def explain(
    operation: Annotated[str, operation_argument("An operation.")],
    device: Device = "cpu",
    problems: Annotated[
        Path | None,
        typer.Option(help="A list of problems. Default: the named problems of OPERATION.", show_default=False),
    ] = None,
    threads: Threads = None,
    load: Load = None,
    storage: Measurements = None,
    as_json: AsJson = False,
) -> None:
    """Show which configuration serves each problem of OPERATION, why, and the measurements of the others.

    Example: nas tune explain attention
    """
    from kernels.dispatch import tuned
    from nas import tuning
    from tuner.search.results import results_at

    registered(load)
    wanted = problems_of(operation, device, problems, None, None, 1, 1, storage)
    with ValueErrors():
        note(
            tuned.table(kind_of(device)).origin or f"There is no table for this {kind_of(device)}; the defaults serve."
        )
        store = results_at(storage)
        rows = [row for some in wanted.values() for row in tuning.explained(store, some, device, threads)]
    print_rows(rows, as_json)


class ValueErrors:
    """Turns the tuner's ValueError into UsageError, and a child process that does not start into NasError."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            raise UsageError(str(error)) from None
        if isinstance(error, RuntimeError) and "the process that measures" in str(error):
            raise NasError(str(error)) from None


def problems_of(
    name: str,
    device: str,
    file: Path | None,
    architecture: str | None,
    study: str | None,
    length: int,
    batch: int,
    storage: str | None,
) -> dict[str, list[Problem]]:
    from kernels.dispatch import registry
    from nas import architectures, location, tuning
    from tuner import problems

    if sum(each is not None for each in (file, architecture, study)) > 1:
        raise UsageError("Give only one of --problems, --architecture and --study.")
    kind = kind_of(device)
    with ValueErrors():
        some = registry.operations().values() if name == "all" else [registry.operation(name)]
        if file is not None:
            found = problems.load(file, kind)
        elif architecture is not None:
            each = architectures.find(architecture, storage)
            found = tuning.problems_of([each], kind, length=length, batch=batch)
        elif study is not None:
            store, opened = location.open_existing(study, storage)
            with store:
                found = tuning.problems_of(tuning.of_study(store, opened), kind, length=length, batch=batch)
        else:
            found = problems.named(some, kind)
    names = {each.name for each in some}
    return {each: wanted for each, wanted in found.items() if each in names}


def entries_of(table: Table, operation: str) -> list[Entry]:
    """The entries of a table for an operation, or for all. Raises ValueError if neither table nor program knows it."""
    from kernels.dispatch import registry

    some = [each for each in table.entries.values() if operation in ("all", each.problem.operation)]
    if not some and operation != "all":
        registry.operation(operation)
    return some


def kind_of(device: str) -> str:
    return device.partition(":")[0]


def registered(files: list[Path] | None) -> None:
    if files:
        from tuner.measure.worker import load

        with ValueErrors():
            for path in files:
                load(path)


def seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    with suppress(ValueError):
        number = float(text.rstrip("smh"))
        unit = units.get(text[len(text.rstrip("smh")) :] or "s")
        if unit is not None and 0 <= number * unit < math.inf:
            return number * unit
    raise UsageError(f"--budget must be a time such as 90s, 10m or 2h, but got {text!r}.")


def since_start() -> float:
    """Seconds since the command began, which count as part of its budget."""
    from nas.cli import app

    return time.monotonic() - app.began


def _sizes(problem: Problem) -> str:
    return " ".join(f"{name}={value}" for name, value in (*problem.sizes, *problem.flags))


def _print_progress(progress: Progress) -> None:
    from nas.report.tables import duration, short, visible

    left = "" if progress.left is None else f", about {duration(progress.left)} left"
    where = f"{progress.number}/{progress.total}{left}"
    best = "" if progress.best is None else f"best so far {short(progress.best)} ms"
    if progress.default is not None:
        best += f", default {short(progress.default)} ms"
    if progress.decision is not None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        note(f"{where}: {progress.problem}: {progress.decision.choice}: {progress.decision.why}")
    elif sys.stderr.isatty():
        print(f"\r\033[K{visible(f'{where}: {progress.problem}: {best}')}", end="", file=sys.stderr, flush=True)


def _print_report(report: Report, path: Path, entries: int, effort: str, as_json: bool) -> None:
    from nas import tuning
    from nas.report.tables import duration

    if as_json:
        print_json({**tuning.report_dict(report), "table": str(path), "entries": entries})
        return
    print_rows([tuning.decision_row(each) for each in report.decisions], False, empty="Nothing was decided.")
    if report.regret is not None:
        note(f"Estimated selection regret: {report.regret - 1:.2%} slower than the best finalist on average.")
    if report.measured:
        note(f"{plural(report.measured, 'measurement')} in {duration(report.seconds)}.")
    elif effort == "none":
        note("Nothing was measured: `--effort none` decides from known measurements.")
    elif report.unfinished:
        note("Nothing was measured: the time ended before the first measurement.")
    else:
        note("Nothing was measured: all measurements were known and are still valid.")
    if report.killed:
        count, lost = plural(report.killed, "process", "processes"), duration(report.killed_seconds)
        note(
            f"Killed from outside, perhaps for lack of memory: {count} that measured ({lost} lost). It was tried again."
        )
    if report.undecided:
        how = "`--effort quick` measures them" if effort == "none" else "the same command continues with them"
        note(f"Undecided: {plural(len(report.undecided), 'problem')}; {how}.")
    elif report.tried < report.possible and effort != "full":
        tried = f"{report.tried:,} of at most {report.possible:,} configurations"
        lacks = f", torch.compile was not tried for {plural(report.unbuilt, 'problem')}" if report.unbuilt else ""
        note(f"More time: {tried} were measured{lacks}; `--effort full` measures more of them and keeps these results.")
    elif report.unfinished:
        some = plural(report.unfinished, "problem")
        note(f"More time: the search of {some} has not ended; the same command continues it.")
    note(f"{path} now serves {plural(entries, 'problem')}.")
