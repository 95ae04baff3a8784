"""Tessera finds sequence-model architectures for your data, your device and your budget.

    result = nas.search("examples/quickstart.yaml")     # run a search; the same call again resumes it
    result.best, result.front, result.verdict           # the best trial, the Pareto front, the finals
    model = nas.build("transformer_decoder:tiny")       # a PyTorch module: a file, YAML text, a name or STUDY:TRIAL
    model, vocabulary, task = nas.load("quickstart:17")   # a trained model: STUDY:TRIAL, an exported file or folder
    nas.export("quickstart", "best", formats="python,huggingface,onnx")   # a folder for other tools
    study = nas.open_study("runs/quickstart.db", "quickstart")   # ask, tell, best, pareto

Importing `nas` is cheap: torch, Ray and SQLAlchemy are imported when a function needs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from torch import nn

    from nas.config.schema import SearchConfig
    from nas.engine.launch import Result
    from nas.exports.files import Exported
    from nas.runners.contract import Runner
    from nas.study import Study
    from nas.trained.loading import Loaded
    from searchspace.model.architecture import Architecture

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

__all__ = ["build", "export", "load", "open_study", "search"]


def __dir__() -> list[str]:
    return __all__


def _short_traceback(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """End an error that the user can correct with its message, not with the frames inside this package."""

    @functools.wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Returned:
        try:
            return function(*given, **named)
        except Exception as error:
            from nas.errors import NasError

            if isinstance(error, NasError):
                raise error.with_traceback(None) from None
            raise

    return call


@_short_traceback
def search(
    config: SearchConfig | str | Path,
    *,
    storage: str | Path | None = None,
    address: str | None = None,
    quiet: bool = False,
    runner: Runner | None = None,
    retry_failed: str | None = None,
) -> Result:
    """Run a search to the end of its budget. The same call again resumes it; a larger budget continues it.

    config: the path of a search file, or a `SearchConfig`.
    storage: the study database, a path or a URL; by default the one that the search file names.
    address: a Ray cluster, such as "auto" or "HEAD:6379"; by default the runner that the search file names.
    quiet: print no progress.
    runner: an object that runs units, in place of the runner that the search file names.
    retry_failed: a kind of failure, such as "out of memory"; failed trials of this kind are tried again first.

    Close the result, or use it in a `with` statement. Raises `nas.errors.NasError` if an argument or the search file is
    invalid, the database cannot be used, no trial gives a result, or Ctrl-C stops the search
    (`nas.engine.loop.Interrupted`).
    """
    _check()
    from nas import location
    from nas.config import searchfile
    from nas.engine import launch

    loaded = searchfile.loaded(config, "nas.search")
    url = None if storage is None else location.url(storage)
    changed = launch.override(loaded, storage=url, address=address)
    return launch.search(changed, quiet=quiet, runner=runner, retry_failed=retry_failed)


@_short_traceback
def open_study(url: str | Path, name: str, config: SearchConfig | str | Path | None = None) -> Study:
    """The study `name` in the database at `url` (a path or a URL). With `config` it is created if it does not exist.

    Raises `nas.errors.NasError` if there is no such database or study, or if `config` does not fit the study.
    """
    _check()
    from nas import study

    return study.open_study(url, name, config)


@_short_traceback
def build(architecture: Architecture | str | Path) -> nn.Module:
    """The PyTorch module of an architecture, with random weights.

    architecture: an `Architecture`, YAML text, the path of a YAML file, a name of the zoo such as "primer" or
    "primer:tiny", or a trial of a study such as "quickstart:17".

    Raises `nas.errors.UsageError` if there is no such architecture, `searchspace.errors.SpaceError` if it is invalid.
    """
    _check()
    from nas import architectures
    from searchspace.model import build as builder

    return builder.build(architectures.as_architecture(architecture))


@_short_traceback
def load(reference: str | Path, *, weights: str | Path | None = None, storage: str | Path | None = None) -> Loaded:
    """A trained model in evaluation mode, its vocabulary and its task, as a named tuple.

    reference: an exported file or folder, the folder of `nas train --out`, or a trial such as "quickstart:17".
    weights: another file of weights. storage: the study database. `task.prepare(None)` reads the data of the task.

    Raises `nas.errors.NasError` if there is no such architecture, or it has no weights that fit.
    """
    _check()
    from nas import location
    from nas.errors import UsageError
    from nas.trained import loading

    if not isinstance(reference, str | Path) or not str(reference):
        raise UsageError(
            "A trained model is an exported file or folder, the folder of `nas train --out`, or STUDY:TRIAL, but got "
            f"{reference!r} ({type(reference).__name__})."
        )
    return loading.load(str(reference), weights, None if storage is None else location.url(storage))


@_short_traceback
def export(
    reference: str | Path,
    out: str | Path | None = None,
    *,
    formats: str | Sequence[str] = "yaml",
    check: bool = True,
    tolerance: float = 0.25,
    licence: str | None = None,
    storage: str | Path | None = None,
) -> Exported:
    """Write an architecture for other tools, and return its path, its files and the results of the check.

    reference: a study, whose winner is exported, a trial such as "quickstart:17" or "quickstart:final-2", an exported
    file or folder, or the folder of `nas train --out`.
    out: a file that ends in .yaml, or a folder; by default STUDY-TRIAL.yaml, or STUDY-TRIAL.
    formats: names, or one text with commas: yaml, safetensors, python, huggingface, torch, aotinductor, onnx.
    check: load a folder again with each tool, and compare it.
    tolerance: of a measured latency in the check, a fraction.
    licence: for the header and the model card.
    storage: the study database, a path or a URL; by default the one of the study.

    Raises `nas.errors.UsageError` for an invalid argument or a block that a format cannot hold; nothing is written
    then. Raises `nas.errors.NasError` if a file cannot be written, or the export does not pass its check.
    """
    _check()
    from dataclasses import replace

    from nas import location
    from nas.errors import NasError, UsageError
    from nas.exports import files

    if not isinstance(reference, str | Path) or not str(reference):
        raise UsageError(f"Name a study, STUDY:TRIAL, a file or a folder to export, but got {reference!r}.")
    names = formats.split(",") if isinstance(formats, str) else formats
    given, url = str(reference), None if storage is None else location.url(storage)
    winner = location.trial_reference(given) is None and not Path(given).exists()
    with files.chosen(given, url, best=winner) as found:
        if licence is not None:
            found = replace(found, origin={**found.origin, "licence": licence})
        path = None if out is None else Path(out)
        exported = files.written(found, given, path, list(dict.fromkeys(names)), check=check, latency=tolerance)
    if exported.wrong:
        raise NasError(exported.failure)
    return exported


def _check() -> None:
    """Explain at once if another distribution's package `kernels` takes the place of ours."""
    from nas import kernels_folder

    kernels_folder.check()
