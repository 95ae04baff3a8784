"""nas search: starts a search, or continues it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Changes, SearchFile, Storage
from nas.cli.output import note, print_json, say

if TYPE_CHECKING:
    from nas.config.schema import SearchConfig
    from nas.engine.launch import Result
    from nas.finals.verdict import EntrantResult


@app.command()
def search(
    file: SearchFile,
    address: Annotated[
        str | None, typer.Option(help="A Ray cluster, e.g. auto or ray://host:10001.", show_default=False)
    ] = None,
    retry_failed: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="First queue failed trials of this kind again, such as 'out of memory'.",
            show_default=False,
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="How many times to run the search, each with the next seed, to compare the runs.")
    ] = 1,
    storage: Storage = None,
    changes: Changes = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result, but no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the search in FILE. The same command resumes it after a stop; a larger budget continues it.

    The name of a study in place of FILE resumes that study with the search file stored in its database.

    Example: nas search examples/quickstart.yaml
    """
    from nas import location
    from nas.config.found import find_search
    from nas.engine import launch
    from nas.files import is_file
    from nas.report import summary, trials

    if not quiet and is_file(file):
        note(f"Reading {file} and preparing its data")
    found = find_search(file, storage, changes or ())
    if not quiet and not is_file(file):
        note(f"The search file of study {file} comes from its database")
    config = launch.override(found, address=address)
    if repeat > 1:
        _repeated(config, repeat, quiet, retry_failed, as_json)
        return
    result = launch.search(config, quiet=quiet, retry_failed=retry_failed)
    with result.store:
        if as_json:
            print_json(summary.to_dict(result.store, result.study, result.verdict))
        else:
            say(summary.to_text(result.store, result.study, result.verdict, partial(_drawn, result)))
        front = trials.front(result.store, result.study)
        best = location.command(result.store, config.study, "best", config.study)
        export = location.command(result.store, config.study, "export", config.study, "--best")
    if not front:
        raise typer.Exit(1)
    if not quiet:
        note(f"Every trial is in {location.shown(config.storage)}; `{best}` and `{export}` read it.")


def _repeated(config: SearchConfig, times: int, quiet: bool, retry_failed: str | None, as_json: bool) -> None:
    """Run the search with several seeds, and print how much they differ. A seed that finds nothing does not end the
    others; the exit code is then 1.

    Raises NothingFound if none finds anything.
    """
    from contextlib import ExitStack

    from nas.engine import launch, planning
    from nas.engine.loop import NothingFound
    from nas.engine.repeats import repeats
    from nas.report import repeats as reports

    every = list(repeats(config, times))
    for each in every[1:]:  # before hours are spent on the first
        planning.found(each)
    with ExitStack() as stack:
        done, nothing = [], []
        for each in every:
            if not quiet:
                note(f"Seed {each.seed}: study {each.study}")
            try:
                result = stack.enter_context(launch.search(each, quiet=quiet, retry_failed=retry_failed))
            except NothingFound as error:
                note(str(error))
                nothing.append(error)
            else:
                done.append((result.store, result.study))
        if not done:
            raise nothing[0]
        found = reports.repeats(done, [each.summary for each in nothing])
    print_json(found.to_dict()) if as_json else say(found.to_text())
    if nothing:
        raise typer.Exit(1)


def _drawn(result: Result, winner: EntrantResult) -> str:
    """The winner's tree, and the depth at which its FLOPs are counted if it has halting blocks."""
    from nas.config.parts import parts
    from nas.report.trials import at_trial_depth
    from searchspace.model.architecture import Architecture
    from searchspace.model.drawing import draw
    from searchspace.model.halting import halting_note

    architecture = Architecture.parse(winner.architecture)
    shape = at_trial_depth(result.store, result.study, winner.trial, parts(result.config).shape)
    return "\n".join(filter(None, (draw(architecture, shape), halting_note(architecture, shape))))
