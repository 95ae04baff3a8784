"""The arguments and options that several commands share, and their completion in a shell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nas.threads import MOST_THREADS

if TYPE_CHECKING:
    from searchspace.cost import Shape


MOST_SEED = 2**53  # as in a search file


def studies(incomplete: str) -> list[str]:
    """The names of the studies in the default folder that begin with `incomplete`."""
    from nas.location import known_studies

    return [name for name in known_studies() if name.startswith(incomplete)]


def zoo_names(incomplete: str) -> list[str]:
    """The names of the zoo that begin with `incomplete`."""
    from searchspace import zoo

    return [name for name in zoo.names() if name.startswith(incomplete)]


def _architectures(incomplete: str) -> list[str]:
    files = [str(path) for path in Path().glob("*.yaml") if str(path).startswith(incomplete)]
    return [*zoo_names(incomplete), *files, *(f"{study}:" for study in studies(incomplete))]


def _search_files(incomplete: str) -> list[str]:
    return sorted(f"{path}/" if path.is_dir() else str(path) for path in Path().glob(f"{incomplete}*"))


def architecture_argument(metavar: str = "ARCHITECTURE", more: str = "") -> typer.models.ArgumentInfo:
    """An argument that `nas.architectures.find` understands; `more` ends its help."""
    return typer.Argument(
        metavar=metavar,
        help=f"An architecture file, a name of the zoo (NAME or NAME:SIZE), or STUDY:TRIAL (17, or final-2).{more}",
        show_default=False,
        autocompletion=_architectures,
    )


StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="The study's name, as in its search file.",
        show_default=False,
        autocompletion=studies,
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The study database: postgresql://... or a SQLite file. Default: $NAS_STORAGE, else runs/STUDY.db.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=1, help="The largest number of rows.")]
SearchFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A search file (YAML), or the name of a study.",
        show_default=False,
        autocompletion=_search_files,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A value in place of that in FILE, e.g. budget.trials=20. Repeatable."
    ),
]
ArchitectureName = Annotated[str, architecture_argument()]
LENGTH = 1024  # positions that costs are computed for by default
Length = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"Sequence length for costs. Default: that of the task of a trial or an export, else {LENGTH}.",
        show_default=False,
    ),
]


def _number(written: str) -> int:
    from nas.numbers import number_of

    number = number_of(written)
    if number is None:
        raise typer.BadParameter(f"a trial is written as its number, or as final-2, but got {written!r}.")
    return number


def trial_option(help_: str) -> typer.models.OptionInfo:
    """The option `--trial`: the number of a trial, or final-N."""
    return typer.Option("--trial", parser=_number, metavar="TRIAL", help=help_, show_default=False)


def threads_option(help_: str, *, show_default: bool = True) -> typer.models.OptionInfo:
    """The option `--threads`."""
    return typer.Option(min=1, max=MOST_THREADS, help=help_, show_default=show_default)


Batch = Annotated[int, typer.Option(min=1, help="Sequences in a batch.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]


def cost_shape(reference: str, storage: str | None, *, length: int | None = None, batch: int = 1) -> Shape:
    """The input that the costs of `reference` are computed for.

    A trial has the length of its study's task, and halting blocks count at the depth that the trial measured. An
    exported file keeps both in its header. `length` replaces the length. Raises UsageError or StoreError if `reference`
    is written as a trial that does not exist.
    """
    from nas import location
    from nas.exports.header import at_exported_depth
    from searchspace.cost import Shape

    shape = Shape(batch=batch, length=length or LENGTH)
    trial = location.trial_reference(reference)
    if trial is None:
        return at_exported_depth(reference, shape, length=length)
    from nas.config.parts import parts
    from nas.config.schema import SearchConfig
    from nas.report.trials import at_trial_depth

    store, study = location.open_existing(trial[0], storage)
    with store:
        if length is None:
            shape = replace(shape, length=parts(SearchConfig.stored(study.config)).shape.length)
        return at_trial_depth(store, study, trial[1], shape)
