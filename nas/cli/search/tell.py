"""nas tell: records the result of a unit that `nas ask` leased."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json
from nas.errors import UsageError


@app.command()
def tell(
    study: StudyName,
    unit: Annotated[int, typer.Argument(metavar="UNIT", help="The unit that `nas ask` gave.", show_default=False)],
    owner: Annotated[str, typer.Option(help="The owner, as `nas ask` gave it.", show_default=False)],
    metrics: Annotated[
        list[str] | None, typer.Argument(metavar="METRIC=VALUE...", help="What was measured.", show_default=False)
    ] = None,
    failure: Annotated[str | None, typer.Option(help="Why the unit failed.", show_default=False)] = None,
    failure_kind: Annotated[
        str | None,
        typer.Option(help="Its kind, such as 'out of memory'. Default: task error.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds that the training took.")] = 0.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Record the metrics of a unit of STUDY, or why it failed. Exits with 1 if its lease is lost.

    Example: nas tell quickstart 17 --owner ask/host/... bits_per_byte=2.31
    """
    from nas.location import storage_of
    from nas.study import LeaseLost, open_study, resume

    measured = dict(_metric(each) for each in metrics or [])
    with open_study(storage_of(study, storage), study) as opened:
        asked = resume(opened, owner, unit)
        if not opened.tell(asked, measured, failure=failure, failure_kind=failure_kind, seconds=seconds):
            raise LeaseLost(f"The lease of unit {unit} has run out, and another process has it; nothing was recorded.")
        state = opened.store.trial(opened.record.id, asked.trial).state.value
    if as_json:
        print_json({"trial": asked.trial, "rung": asked.rung, "state": state, "metrics": measured, "failure": failure})
    else:
        note(f"Recorded rung {asked.rung} of trial {asked.trial}, which is {state}.")


def _metric(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if name and equals:
            return name, float(value)
    except ValueError:
        pass
    raise UsageError(f"A metric is written NAME=VALUE, as in bits_per_byte=2.31, but got {text!r}.")
