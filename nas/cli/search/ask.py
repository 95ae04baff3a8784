"""nas ask: leases units to train outside of Tessera."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage, StudyName
from nas.cli.output import note, print_json, say
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.study import Ask, Study


@app.command()
def ask(
    study: StudyName,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many units to lease, at most 10,000.")] = 1,
    lease: Annotated[float, typer.Option(min=1, help="Seconds until a unit may be given to another caller.")] = 3600.0,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Lease units of STUDY to train yourself, and report their results with `nas tell`. Exits with 1 if none is left.

    Example: nas ask quickstart --json > unit.json
    """
    from nas.location import storage_of
    from nas.study import open_study

    with open_study(storage_of(study, storage), study) as opened:
        asked = opened.ask(count, lease_seconds=lease)
        texts = [_text(each, opened) for each in asked]
    if as_json:
        print_json([each.as_dict() for each in asked])
    else:
        say("---\n".join(texts), end="")
    if not asked:
        note("There is nothing to do: the budget is spent, or other processes work on all open trials.")
        raise typer.Exit(1)


def _text(asked: Ask, study: Study) -> str:
    """The architecture as YAML; comments say what to do and how to report the result."""
    from nas.location import command

    answer = command(study.store, study.name, "tell", study.name, str(asked.unit), "--owner", asked.owner)
    continues = f" (it continues from {asked.checkpoint})" if asked.checkpoint else ""
    return (
        f"# trial {asked.trial} {_task(asked)}{continues}\n"
        f"# answer: {answer} METRIC=VALUE ...\n"
        f"{asked.architecture.text()}"
    )


def _task(asked: Ask) -> str:
    if asked.kind == "probe":
        return f"probe: score the untrained model with seed {asked.seed}"
    return f"rung {asked.rung}: train to {plural(asked.steps, 'step')} with seed {asked.seed}"
