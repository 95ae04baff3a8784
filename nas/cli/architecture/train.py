"""nas train: train one architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import MOST_SEED, ArchitectureName, AsJson, Storage, threads_option
from nas.cli.output import note, print_json, say

if TYPE_CHECKING:
    from nas.work import Progress


@app.command()
def train(
    architecture: ArchitectureName,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps in all. Default: the recorded training, else 300.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="A task, or your own task file. Default: the recorded one, else one that suits.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Text files for language_model, e.g. 'books/*.txt'.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Sequence length of the task.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="A YAML file with a recipe, or a search file.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0.0, help="The learning rate. Default: the recipe's.")
    ] = None,
    evaluate: Annotated[
        int | None, typer.Option(min=1, help="Evaluate every N steps. Default: where the search did, and at the end.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WEIGHTS", help="Begin with these weights: a file or STUDY:TRIAL.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the training in --out with its settings, else the trial's checkpoint."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_SEED, help="Seed of the weights and the order of the data. Default: 0."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ... Default: the study's, else cpu.")] = None,
    threads: Annotated[int | None, threads_option("CPU threads. Default: the study's, else 1.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the best and the last checkpoint; `nas.load` reads it.")
    ] = None,
    callback: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Report to csv, tensorboard, mlflow or wandb, separated by commas."),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Train ARCHITECTURE and evaluate it on held-out data. A trial or an exported file uses the task, data, recipe and
    seed of its study; options replace them. A file may leave out the fields that the task decides, such as vocabulary
    and classes; in a model of the zoo they are those of the task.

    Example: nas train quickstart:17 --steps 2000 --evaluate 500 --out trained
    """
    from nas import architectures
    from nas.callbacks.registry import make
    from nas.errors import UsageError
    from nas.tasks.fields import suited
    from nas.trained import recorded, settings, training, weights

    options = {key: value for key, value in (("data", data), ("length", length)) if value is not None}
    if callback and out is None:
        raise UsageError("--callback needs --out FOLDER, where it writes.")
    if resume and from_ is not None:
        raise UsageError("Give either --resume or --from WEIGHTS.")
    resumes = resume and out is not None and (out / recorded.TRAINING).is_file()
    before = recorded.find(str(out)) if resumes else None
    if before is None and task is None and architectures.in_zoo(architecture):
        task = suited(architectures.find(architecture))
    record = recorded.find(architecture, storage, lambda: settings.prepared(before, task, options))
    if before is not None:
        record = settings.continued(record, before)
    chosen = settings.settings(
        record,
        task=task,
        options=options,
        recipe=None if recipe is None else settings.read_recipe(recipe),
        changes={} if learning_rate is None else {"learning_rate": learning_rate},
        steps=steps,
        every=evaluate,
        seed=seed,
        device=device,
        threads=threads,
    )
    for line in chosen.lines():
        note(line)
    if settings.data_changed(record, chosen):
        note("warning: the data have changed since the search, so the numbers will differ from its own")
    about = {"name": architecture, "architecture": record.architecture.hash, "settings": "; ".join(chosen.lines())}
    if out is not None and callback:
        out.mkdir(parents=True, exist_ok=True)
    callbacks = [make(name, out or Path(), about) for name in filter(None, (callback or "").split(","))]

    def progressed(each: Progress) -> None:
        note(f"step {each.step}/{chosen.steps}  loss {each.loss:.3f}  {each.tokens_per_second:,.0f} tokens/s")
        for one in callbacks:
            one.log(each.step, {"training/loss": each.loss, "training/tokens_per_second": each.tokens_per_second})

    def evaluated(step: int, metrics: Mapping[str, float]) -> None:
        shown = "  ".join(f"{name} {value:.6g}" for name, value in metrics.items() if "/" not in name)
        note(f"step {step}: {shown}")
        for one in callbacks:
            one.log(step, metrics)

    try:
        trained = training.train(
            record,
            chosen,
            out=out,
            start=None if from_ is None else weights.of_reference(from_, storage),
            resume=resume,
            progress=progressed,
            evaluated=evaluated,
        )
    finally:
        for one in callbacks:
            one.close()
    last = trained.points[-1].metrics
    if as_json:
        points = [{"step": each.step, **each.metrics} for each in trained.points]
        found = {"metrics": dict(last), "seconds": trained.seconds, "checkpoint": trained.last, "points": points}
        print_json(found | {"best": trained.best, "best_step": trained.best_step})
    else:
        for name, value in last.items():
            say(f"{name}: {value:.6g}")
