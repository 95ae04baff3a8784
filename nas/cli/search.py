"""nas search: launch a search, or go on with it."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, SearchFile, Storage
from nas.cli.output import note, print_json


@app.command()
def search(
    file: SearchFile,
    address: Annotated[str | None, typer.Option(help="A Ray cluster, e.g. auto or ray://host:10001.")] = None,
    storage: Storage = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search as FILE says. The same command again resumes; a larger budget continues.

    Example: nas search examples/quickstart.yaml
    """
    from nas import launch, overview, searchfile, summary

    config = launch.override(searchfile.load(file), storage=storage, address=address)
    result = launch.search(config, quiet=quiet)
    if as_json:
        print_json(summary.as_dict(result))
    else:
        print(summary.as_text(result))
        note(
            f"Every trial is in {config.storage}; `nas best {config.study}` and `nas export {config.study} --best` read it."
        )
    if not overview.front(result.store, result.study):
        raise typer.Exit(1)
