"""nas zoo: list, print, build and train the published architectures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import MOST_SEED, AsJson, Device, threads_option, zoo_names
from nas.cli.output import note, print_json, print_rows, say
from nas.errors import NasError

zoo_app = typer.Typer(help="The published architectures that are included.", no_args_is_help=True)
app.add_typer(zoo_app, name="zoo")


def _name(help_: str) -> typer.models.ArgumentInfo:
    return typer.Argument(metavar="NAME", help=help_, show_default=False, autocompletion=zoo_names)


Name = Annotated[str, _name("A name from `nas zoo list`.")]
Size = Annotated[str, typer.Option(help="A size from `nas zoo list`. base: as published. tiny: trains on any machine.")]


@zoo_app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List name, parameters of the base size, sizes and description of each architecture.

    Example: nas zoo list
    """
    from searchspace import zoo
    from searchspace.model.build import cost

    rows: list[dict[str, Any]] = []
    for name in zoo.names():
        sizes, parameters = zoo.sizes(name), cost(zoo.load(name)).parameters
        rest = {"sizes": sizes if as_json else " ".join(sizes), "description": zoo.description(name)}
        rows.append({"name": name, "parameters": parameters, **rest})
    print_rows(rows, as_json)


@zoo_app.command()
def show(name: Name, size: Size = "base", as_json: AsJson = False) -> None:
    """Print the YAML file of NAME, to copy and change.

    Example: nas zoo show transformer_modern --size small > mine.yaml
    """
    from searchspace import zoo

    text = zoo.text(name) if size == zoo.BASE else zoo.load(name, size).text()
    print_json({"name": name, "size": size, "text": text}) if as_json else say(text, end="")


@zoo_app.command()
def build(name: Name, size: Size = "base", device: Device = "cpu", as_json: AsJson = False) -> None:
    """Build NAME with new weights and print its size. On the device `meta` it has shapes but uses no memory.

    Example: nas zoo build transformer_modern --device meta
    """
    import torch

    from searchspace import zoo
    from searchspace.model.build import build, cost

    architecture = zoo.load(name, size)
    with torch.device(device):
        model = build(architecture)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    declared = cost(architecture)
    built = {
        "name": name,
        "size": size,
        "hash": architecture.hash,
        "parameters": parameters,
        "modules": sum(1 for _ in model.modules()),
        "flops": declared.expected_flops,
        "state_bytes": declared.state_bytes,
    }
    if parameters != declared.parameters:
        raise NasError(f"{name} was built with {parameters} parameters, but its cost declares {declared.parameters}.")
    print_json(built) if as_json else print_rows([built], as_json=False)


@zoo_app.command()
def train(
    name: Annotated[str, _name("A name from `nas zoo list`, or all.")],
    size: Size = "tiny",
    steps: Annotated[int, typer.Option(min=2, help="Number of optimiser steps.")] = 50,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Seed for the weights and the order of the data.")
    ] = 0,
    device: Device = "cpu",
    threads: Annotated[int, threads_option("CPU threads.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Train NAME on a suitable task with data that every machine has; print one line of losses for each.

    Decoders predict text. Encoders fill in masked symbols or classify. Encoder-decoders reverse text.

    Example: nas zoo train transformer_xl --steps 50
    """
    from nas.training import standalone
    from searchspace import zoo

    rows, failed = [], []
    for each in zoo.names() if name == "all" else [name]:
        trained = standalone.train_suited(zoo.load(each, size), steps=steps, seed=seed, device=device, threads=threads)
        outcome = trained.outcome
        if outcome.failure is not None:
            failed.append(f"{each}: {outcome.failure.kind}: {outcome.failure.message}")
            continue
        first, last = outcome.curve[0][1], outcome.curve[-1][1]
        row = {"name": each, "task": trained.task, "steps": steps, "first_loss": first, "last_loss": last}
        rows.append({**row, "lower": last < first, "seconds": outcome.seconds})
        if name == "all":
            note(f"{each}: {first:.3f} -> {last:.3f} in {outcome.seconds:.1f} s")
    print_rows(rows, as_json, empty="Nothing was trained.")
    if failed:
        raise NasError("\n".join(failed))
