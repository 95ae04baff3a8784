"""nas dashboard: serves pages about studies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.output import note, print_json

PORT = 8765


@app.command()
def dashboard(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="Open the page of this study.")] = None,
    storage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A study database; several may be given. Default: $NAS_STORAGE, else every file in runs/.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on. 0.0.0.0 allows other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(help="The token for browsers. Required on other hosts. Default: $NAS_DASHBOARD_TOKEN."),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path below which a proxy shows the pages, such as /tessera.")
    ] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name under which a proxy shows the pages, such as lab.example.org; may be repeated.",
            show_default=False,
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve pages about studies until Ctrl-C: fronts, progress, trials, architectures, tuning.

    The database is only read, so this is safe during a search. Without --host only this machine can open the pages.

    Example: nas dashboard quickstart --open
    """
    from dashboards.server.serve import prepare

    served = prepare(study, storage or [], host, port, token, root_path, allow_host or [])
    if as_json:
        print_json({"address": served.address})
        sys.stdout.flush()  # a program that started this waits for the address
    note(f"The dashboard is at {served.address}  (Ctrl-C ends it)")
    served.run(open_browser=open_browser)
