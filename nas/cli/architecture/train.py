"""nas train: train one architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Device, Storage
from nas.cli.output import note, print_json
from nas.errors import NasError


@app.command()
def train(
    architecture: ArchitectureName,
    steps: Annotated[int, typer.Option(min=1, help="Number of optimiser steps.")] = 300,
    task: Annotated[str, typer.Option(help="A task, or the path of your own task file.")] = "language_model",
    data: Annotated[
        str | None, typer.Option(help="Text files for language_model, e.g. 'books/*.txt'.", show_default=False)
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Sequence length of the task.", show_default=False)] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, help="Default: the recipe's.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the weights and the order of the data.")] = 0,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the checkpoint; an interrupted run continues from it.", show_default=False),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Train ARCHITECTURE and evaluate it on held-out data. A file may leave out what the task decides (vocabulary).

    Example: nas train transformer_modern:small --data 'texts/*.txt' --steps 500
    """
    from nas import architectures
    from nas.training import standalone

    options = {key: value for key, value in (("data", data), ("length", length)) if value is not None}
    outcome = standalone.train(
        architectures.find(architecture, storage, lambda: standalone.decided_fields({task: options})).text(),
        {task: options},
        {} if learning_rate is None else {"learning_rate": learning_rate},
        steps=steps,
        seed=seed,
        device=device,
        threads=threads,
        out=out and str(out),
        progress=lambda each: note(
            f"step {each.step}/{each.steps}  loss {each.loss:.3f}  {each.tokens_per_second:,.0f} tokens/s"
        ),
    )
    if outcome.failure is not None:
        raise NasError(f"{outcome.failure.kind}: {outcome.failure.message}")
    if as_json:
        print_json({"metrics": dict(outcome.metrics), "seconds": outcome.seconds, "checkpoint": outcome.checkpoint})
    else:
        for name, value in outcome.metrics.items():
            print(f"{name}: {value:.6g}")
