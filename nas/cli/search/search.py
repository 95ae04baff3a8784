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
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster, e.g. auto or ray://host:10001.", show_default=False)
    ] = None,
    storage: Storage = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search as FILE says. The same command again resumes; a larger budget continues.

    Example: nas search examples/quickstart.yaml
    """
    from nas import location
    from nas.config import searchfile
    from nas.engine import launch
    from nas.report import overview, summary

    config = searchfile.load(file)
    config = launch.override(config, storage=location.storage_for(config, storage), address=address)
    result = launch.search(config, quiet=quiet)
    with result.store:
        if as_json:
            print_json(summary.as_dict(result))
        else:
            print(summary.as_text(result))
        found = overview.front(result.store, result.study)
    if not found:
        raise typer.Exit(1)
    if not quiet:
        where = f" --storage {storage}" if storage else ""
        note(
            f"Every trial is in {location.shown(config.storage)}; `nas best {config.study}{where}` and "
            f"`nas export {config.study} --best{where}` read it."
        )
