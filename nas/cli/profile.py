"""nas profile: measured latency of an architecture."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Storage
from nas.cli.output import note, print_rows


@app.command()
def profile(
    architecture: ArchitectureName,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    length: Annotated[int, typer.Option(min=1, help="Positions in the prompt, and before the decoded token.")] = 256,
    batch: Annotated[int, typer.Option(min=1)] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default: torch's own.")] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Measure prefill, decode step and train step of ARCHITECTURE: median milliseconds and their 95% interval.

    Example: nas profile transformer_modern --length 512 --threads 1
    """
    from nas import architectures
    from nas import profile as profiling
    from tuner.device import fingerprint

    measured = profiling.profile(
        architectures.find(architecture, storage), device=device, length=length, batch=batch, threads=threads
    )
    note(f"{fingerprint(device).name}, length {length}, batch {batch}; milliseconds")
    print_rows([profiling.as_row(each) for each in measured], as_json)
