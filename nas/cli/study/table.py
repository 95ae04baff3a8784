"""nas table: every trial of a study as a table, and its learning curves, for people and other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName, trial_option
from nas.cli.output import note, print_json, print_rows, say
from nas.errors import NasError, UsageError
from nas.files import write_whole
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@app.command()
def table(
    study: StudyName,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A file that ends in .csv or .parquet; the folder of --to. Default: prints CSV."
        ),
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Print learning curves instead: of --trial, else of the best ten.")
    ] = False,
    trial: Annotated[list[int] | None, trial_option("Only the curves of these trials, such as 17 or final-2.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The curves of every trial.")] = False,
    to: Annotated[
        str | None,
        typer.Option(help="csv, tensorboard, mlflow or wandb, separated by commas. Each ended trial becomes a run."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="With --to: go on until the search ends.")] = False,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write every trial of STUDY as a row: state, arm, seed, steps, sizes, objectives, metrics, choices and parents.
    activity: whether a trial that has not ended is running, paused or interrupted.

    With --curves, print the training loss over the steps. With --to, write curves and metrics for another tool; the
    same command again adds what is new.

    Example: nas table quickstart -o trials.parquet
    """
    with uncollected():  # the imports alone: to follow a study takes hours
        from nas import location
        from nas.report import curves as reported

    if follow and to is None:
        raise UsageError("--follow needs --to, such as --to tensorboard.")
    if (trial or every) and to is None and not curves:
        raise UsageError("--trial and --all need --curves or --to.")
    if to is None and not curves:
        _check_ending(out)
    store, found = location.open_existing(study, storage)
    with store:
        if to is not None:
            _tell(store, found, to, out or Path(f"{found.name}-curves"), follow, trial, as_json)
        elif curves:
            lines = reported.chosen(store, found, trial or (), every=every)
            if as_json:
                print_json([{"trial": each.number, "final": each.final, "curve": points} for each, points in lines])
            else:
                rows = [reported.row(each, points) for each, points in lines]
                print_rows(rows, False, empty="No trial has a curve yet.")
        else:
            _write(_rows(store, found), out, as_json)


def _check_ending(out: Path | None) -> None:
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--out must end in .csv or .parquet, but got {str(out)!r}.")


def _tell(
    store: Reader, study: Study, to: str, out: Path, follow: bool, trials: list[int] | None, as_json: bool
) -> None:
    """Write the trials for other tools, and say how many. Raises UsageError if `to` names no tool."""
    from nas.callbacks.of_study import told

    names = [name.strip() for name in to.split(",") if name.strip()]
    if not names:
        raise UsageError(f"--to names the tools with commas, such as csv,tensorboard, but got {to!r}.")
    count = 0
    for number, name in told(store, study, names, out, follow=follow, trials=trials or None):
        note(f"{store.trial(study.id, number).name}: {name}")
        count += 1
    if as_json:
        print_json({"folder": str(out), "written": count})
    else:
        say(f"{plural(count, 'run')} written to {out}.")


def _write(rows: list[dict[str, Any]], out: Path | None, as_json: bool) -> None:
    """Print the rows, or write them to a file."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if out is None:
        print_json(rows) if as_json else say(_csv(rows, columns), end="")
        return
    if out.suffix == ".csv":
        content = _csv(rows, columns).encode()
    else:
        try:
            content = _parquet(rows, columns)
        except ImportError:
            raise NasError("Parquet needs pyarrow: pip install 'tessera-nas[tables]', or write .csv.") from None
    write_whole(out, content)
    if as_json:
        print_json({"file": str(out), "trials": len(rows)})
    else:
        say(str(out))


def _rows(store: Reader, study: Study) -> list[dict[str, Any]]:
    """A row for each trial; the number of queries does not depend on how many there are."""
    from nas.report import trials

    every = store.trials(study.id)
    seconds, metrics = store.seconds(study.id), store.last_metrics(study.id)
    activities = [each["activity"] for each in trials.rows(store, study, every)]
    return [
        {
            "trial": trial.number,
            "state": trial.state.value,
            "activity": activity,
            "purpose": trial.purpose,
            "final": trial.final,
            "arm": trial.arm,
            "operator": trial.operator,
            "parents": " ".join(map(str, trial.parents)),
            "seed": trial.seed,
            "steps": trial.steps,
            "seconds": seconds.get(trial.number, 0.0),
            "parameters": trial.parameters,
            "step_flops": trial.step_flops,
            "architecture_hash": trial.architecture_hash,
            "error": trial.error_kind,
            **{f"objective/{name}": value for name, value in trial.values.items()},
            **{f"metric/{name}": value for name, value in metrics.get(trial.number, {}).items()},
            **{f"choice/{hole}": value for hole, value in (trial.choices or {}).items()},
            "architecture": trial.architecture,
        }
        for trial, activity in zip(every, activities, strict=True)
    ]


def _csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: _as_text(name) for name in columns})
    writer.writerows({name: _as_text(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _as_text(value: Any) -> Any:
    """`value`; a text that a spreadsheet would run as a formula has an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _parquet(rows: list[dict[str, Any]], columns: list[str]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({name: _column([row.get(name) for row in rows]) for name in columns})
    parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _column(values: list[Any]) -> Any:
    """Values as a column; a choice between values of several types, such as `!choice [true, 4]`, as text."""
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return pyarrow.array([None if value is None else str(value) for value in values])
