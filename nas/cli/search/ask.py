"""nas ask: a trial to evaluate by yourself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json

if TYPE_CHECKING:
    from nas.study import Ask


@app.command()
def ask(
    study: StudyName,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 1,
    lease: Annotated[float, typer.Option(min=1, help="Seconds until it may be given to another asker.")] = 3600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Units of STUDY to train yourself, leased to you; answer with `nas tell`. Exits with 1 when none is left.

    Example: nas ask quickstart --json > unit.json
    """
    from nas.location import storage_of
    from nas.study import open_study

    with open_study(storage_of(study, storage), study) as opened:
        asked = opened.ask(count, lease_seconds=lease)
    if as_json:
        print_json([each.as_dict() for each in asked])
    else:
        print("---\n".join(_text(each, study, storage) for each in asked), end="")
    if not asked:
        note("There is nothing to do: the budget is spent, or all open trials are in other hands.")
        raise typer.Exit(1)


def _text(asked: Ask, study: str, storage: str | None) -> str:
    """YAML that builds, with what to do and how to answer in its head."""
    goes_on = f" (it goes on from {asked.checkpoint})" if asked.checkpoint else ""
    where = f" --storage {storage}" if storage else ""
    return (
        f"# trial {asked.trial} rung {asked.rung}: train to {asked.steps} steps with seed {asked.seed}{goes_on}\n"
        f"# answer: nas tell {study} {asked.unit}{where} --owner {asked.owner} METRIC=VALUE ...\n"
        f"{asked.architecture.text()}"
    )
