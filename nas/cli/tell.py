"""nas tell: what came of a trial that was asked for."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName, storage_url
from nas.cli.output import note, print_json
from nas.errors import NasError, UsageError


@app.command()
def tell(
    study: StudyName,
    unit: Annotated[int, typer.Argument(help="The unit, as `nas ask` gave it.", show_default=False)],
    owner: Annotated[str, typer.Option(help="The owner, as `nas ask` gave it.", show_default=False)],
    metrics: Annotated[list[str] | None, typer.Argument(help="METRIC=VALUE ...", show_default=False)] = None,
    failure: Annotated[str | None, typer.Option(help="Why it gave no result.")] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Record the metrics of a unit of STUDY, or why it failed.

    Example: nas tell quickstart 17 --owner ask/host/... bits_per_byte=2.31
    """
    from nas.study import open_study, resume

    opened = open_study(storage_url(study, storage), study)
    asked = resume(opened, owner, unit)
    measured = dict(_metric(each) for each in metrics or [])
    if not opened.tell(asked, measured, failure=failure):
        raise NasError(f"The lease of unit {unit} has run out, and another has taken it; nothing was recorded.")
    if as_json:
        print_json({"trial": asked.trial, "rung": asked.rung, "metrics": measured, "failure": failure})
    else:
        note(f"Recorded trial {asked.trial}, rung {asked.rung}.")


def _metric(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise UsageError(f"A metric is written NAME=VALUE, as in bits_per_byte=2.31, but got {text!r}.") from None
