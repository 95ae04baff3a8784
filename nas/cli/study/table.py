"""nas table: every trial of a study as a table for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.collector import uncollected
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import print_json, say

if TYPE_CHECKING:
    from nas.store import Reader, Study

FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@app.command()
@uncollected()
def table(
    study: StudyName,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file that ends in .csv or .parquet. Default: prints CSV.")
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Write every trial of STUDY as a row: state, arm, seed, steps, sizes, objectives, metrics, choices and parents.
    activity: whether a trial that has not ended is running, paused or interrupted.

    Example: nas table quickstart -o trials.parquet
    """
    from nas import location
    from nas.errors import NasError, UsageError
    from nas.files import write_whole

    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--out must end in .csv or .parquet, but got {str(out)!r}.")
    store, found = location.open_existing(study, storage)
    with store:
        rows = _rows(store, found)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if out is None and as_json:
        print_json(rows)
        return
    if out is None:
        say(_csv(rows, columns), end="")
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
