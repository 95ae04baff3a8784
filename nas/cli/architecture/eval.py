"""nas eval: the metrics of a trained model on held-out data."""

from __future__ import annotations

from typing import Annotated

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Storage, threads_option
from nas.cli.output import note, print_json, say


@app.command(name="eval")
def evaluate(
    architecture: ArchitectureName,
    weights: Annotated[
        str | None, typer.Option(help="A file of weights. Default: those next to the file, or of the trial.")
    ] = None,
    split: Annotated[str, typer.Option(help="validation or test.")] = "test",
    task: Annotated[str | None, typer.Option(help="A task, or your own task file. Default: the recorded one.")] = None,
    data: Annotated[str | None, typer.Option(help="Text files for language_model. Default: the recorded ones.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Sequence length of the task.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... Default: the study's, else cpu.")] = None,
    threads: Annotated[int | None, threads_option("CPU threads. Default: the study's, else 1.")] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a trained ARCHITECTURE on the held-out data of its own task, or of another one.

    Example: nas eval best.yaml --split test
    """
    from nas.errors import UsageError
    from nas.trained import loading, recorded, settings

    if split not in ("validation", "test"):
        raise UsageError(f"--split must be validation or test, but got {split!r}.")
    options = {key: value for key, value in (("data", data), ("length", length)) if value is not None}
    record = recorded.find(architecture, storage, lambda: settings.prepared(None, task, options))
    chosen = settings.settings(record, task=task, options=options, device=device, threads=threads)
    note(chosen.lines()[0])
    metrics = loading.evaluate(record, chosen, "test" if split == "test" else "validation", weights, storage)
    if as_json:
        print_json({"split": split, "metrics": metrics})
        return
    for name, value in metrics.items():
        say(f"{name}: {value:.6g}")
