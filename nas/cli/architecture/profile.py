"""nas profile: measured latency of an architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nas.cli.app import app
from nas.cli.options import ArchitectureName, AsJson, Batch, Device, Storage, cost_shape, threads_option
from nas.cli.output import note, print_rows
from nas.errors import UsageError
from nas.report.tables import rendered
from searchspace.errors import SpaceError

if TYPE_CHECKING:
    from searchspace.cost import Shape
    from searchspace.model.architecture import Architecture


@app.command()
def profile(
    architecture: ArchitectureName,
    device: Device = "cpu",
    length: Annotated[int, typer.Option(min=1, help="Positions in the prompt, which is read before decoding.")] = 256,
    batch: Batch = 1,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            help="prefill, decode, train, first_token or generate; may be repeated. Default: the first three.",
            show_default=False,
        ),
    ] = None,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens that the phase generate adds to the prompt.")] = 32,
    threads: Annotated[
        int | None, threads_option("CPU threads. Default: the setting of torch.", show_default=False)
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Steps of halting blocks, up to the limit of each. Default: the steps of untrained blocks.",
            show_default=False,
        ),
    ] = None,
    storage: Storage = None,
    as_json: AsJson = False,
) -> None:
    """Measure prefill, decode step and train step of ARCHITECTURE: median milliseconds and their 95% interval.

    first_token reads a prompt and chooses the next token; generate chooses more tokens. Each phase also has its tokens
    per second, its peak memory next to the declared memory, and its energy if the device reports it.

    If ARCHITECTURE is a trial of a search for latency, also compare the result with the recorded latency.

    Example: nas profile transformer_modern:small --phase decode --length 512 --threads 1
    """
    import torch

    from kernels.dispatch import tuned
    from kernels.dispatch.device import fingerprint
    from nas import architectures, tuning
    from nas.latency import profile as profiling
    from nas.latency.resources import NOT_REPORTED, declared
    from nas.latency.runs import Setting

    found = architectures.find(architecture, storage)
    try:
        before = profiling.recorded(architecture, storage, device, threads)
        measured = profiling.profile(
            found,
            device=device,
            length=length,
            batch=batch,
            phases=phase,
            threads=threads,
            quiet=before.quiet,
            new_tokens=new_tokens,
            depth=depth,
            extras=True,
        )
    except SpaceError:
        raise
    except ValueError as error:  # a missing device, or a length that the model does not support
        raise UsageError(str(error)) from None
    asked: dict[str, Any] = {
        "batch": batch,
        "length": length,
        "threads": threads or torch.get_num_threads(),
        "depth": depth,
    }
    rows = []
    for each in measured:
        setting = Setting(phase=each.phase, new_tokens=new_tokens, **asked)
        more = {"declared_bytes": declared(found.configured, setting), "recorded": before.of(each, setting)}
        rows.append({**each.to_dict(), **more})
    if not as_json:
        note(f"{fingerprint(device).name}, length {length}, batch {batch}; milliseconds")
        if all(each.joules is None for each in measured):
            note(f"Energy: {NOT_REPORTED}.")
        if halting := _halting(found, cost_shape(architecture, storage), depth):
            note(halting)
        for recorded in filter(None, (row["recorded"] for row in rows)):
            note(recorded["says"])
        left_out = ("served", "recorded")
        rows = [{name: row[name] for name in row if name not in left_out and row[name] is not None} for row in rows]
        kind = device.partition(":")[0]
        problems = tuning.problems_of([found], kind, length=length, batch=batch)
        served = tuning.served(problem for some in problems.values() for problem in some)
        note(f"Table of tuned kernels: {tuned.table(kind).origin or 'none; defaults are used'}")
        if served:
            note(rendered(served))
    print_rows(rows, as_json)


def _halting(found: Architecture, shape: Shape, depth: int | None) -> str:
    """How many steps of halting blocks were timed; "" if there is nothing to say."""
    from searchspace.model.halting import UNTRAINED, depths, halting_note

    if depth is None:
        said = halting_note(found, shape)
        return said and f"{said} The times are those of {UNTRAINED}."
    most = sorted({times for _, times in depths(found, shape)})
    if not most:
        return f"--depth {depth} changes nothing: no block of this architecture halts."
    steps = ", ".join(f"{min(depth, times)} of {times}" for times in most)
    return f"The times are those of {steps} steps of halting."
