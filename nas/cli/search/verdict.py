"""nas verdict: runs the finals of a study or of one architecture, or extends them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.cli.app import app
from nas.cli.options import AsJson, Storage
from nas.cli.output import note, print_json, say

if TYPE_CHECKING:
    from nas.config.schema import SearchConfig

OF_STUDY = re.compile(r"^# study: (\S+)$", re.MULTILINE)  # in the head of an exported file


@app.command()
def verdict(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study that has ended; or an architecture: a file, a name of the zoo, or STUDY:TRIAL.",
            show_default=False,
        ),
    ],
    like: Annotated[
        str | None,
        typer.Option(
            metavar="SEARCH",
            help="For an architecture: the search file or study whose task and recipe to use. "
            "Default: the study that exported the file, or that of the trial.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="A further baseline: a file or a name of the zoo.", show_default=False)
    ] = None,
    steps: Annotated[
        list[int] | None, typer.Option("--lengths", min=1, help="Training steps of the runs.", show_default=False)
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each entrant.", show_default=False)] = None,
    storage: Storage = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result, but no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train the best of STUDY and strong baselines again, and say which is better.

    Every entrant tries the same learning rates. Runs that are there already are used again, so the same command with
    more seeds, lengths or baselines adds to them. An option may be given several times.

    Example: nas verdict quickstart --against my_baseline.yaml --lengths 360 --lengths 1080
    """
    from nas.engine import launch
    from nas.errors import UsageError
    from nas.finals import again
    from nas.report import summary

    config = again.extended(_config(name, like, storage), against=against or (), steps=steps or (), seeds=seeds)
    if not quiet:
        note(f"Finals of {config.study}: {', '.join(map(str, config.finals.steps or ()))} steps")
    with launch.finals(config, quiet=quiet) as result:
        found = result.verdict
        if found is None:
            raise UsageError(summary.without_result(result.store, result.study) or "No trial can enter the finals.")
        print_json(found.to_dict()) if as_json else say("\n".join(summary.of_finals(found)))


def _config(name: str, like: str | None, storage: str | None) -> SearchConfig:
    """The search of a study, or one that is made for an architecture."""
    from nas import architectures, location
    from nas.config.found import find_search
    from nas.config.parts import parts
    from nas.errors import UsageError
    from nas.finals import again
    from nas.tasks.fields import decided
    from searchspace.errors import nearest

    trial = location.trial_reference(name)
    if like is None and trial is None and not Path(name).is_file() and name in location.known_studies():
        return again.as_judged(find_search(name, storage))
    if like is None and trial is not None:
        like = trial[0]
    if like is None and Path(name).is_file():
        exported = OF_STUDY.search(Path(name).read_text(encoding="utf-8", errors="replace"))
        like = exported[1] if exported else None
    if like is None:
        if storage is not None:
            return again.as_judged(find_search(name, storage))
        raise UsageError(
            f"{name!r} is not a study here.{nearest(name, location.known_studies())} For an architecture, name the "
            f"search file or study whose task and recipe to use: `nas verdict {shlex.quote(name)} --like FILE`."
        )
    search = find_search(like, storage)
    found = architectures.find(name, storage, lambda: decided(parts(search).prepared_task))
    return again.of_architecture(found, search)
