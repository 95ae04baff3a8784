"""Exports from a reference to files: the common part of the command `nas export` and the function `nas.export`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nas.errors import UsageError
from nas.exports import files
from nas.exports.paths import ARCHITECTURE

if TYPE_CHECKING:
    from nas.exports.winner import Winner

FILES = {"yaml", "safetensors"}  # formats of one file each, which need no folder


@contextmanager
def chosen(reference: str, storage: str | None, *, best: bool = False, trial: int | None = None) -> Iterator[Winner]:
    """What to export: a trial, an exported file or folder, or the folder of a training. Its store is open inside.

    reference: STUDY with `best` or `trial`; STUDY:TRIAL, such as quickstart:17 or quickstart:final-2; or a path. Raises
    UsageError if it does not name exactly one.
    """
    from nas import location
    from nas.exports import winner

    named = location.trial_reference(reference)
    if named is not None and not best and trial is None:
        reference, trial = named
    elif Path(reference).exists() and not best and trial is None:
        from nas.trained import recorded

        yield winner.of_record(recorded.find(reference, storage))
        return
    if best == (trial is not None):
        raise UsageError(f"Name one trial of the study: --best or --trial N, or {reference}:N.")
    store, found = location.open_existing(reference, storage)
    with store:
        number = winner.best_number(store, found) if trial is None else trial
        yield winner.winner(store, found, number)


def written(
    found: Winner,
    reference: str,
    out: Path | None,
    formats: Sequence[str],
    *,
    check: bool = True,
    latency: float | None = None,
) -> files.Exported:
    """Write `found` into `out`: a file that ends in .yaml, or a folder; by default STUDY-TRIAL.yaml, or STUDY-TRIAL.

    A folder is checked unless `check` is false. latency: the tolerance of the check, a fraction. Raises UsageError or
    NasError as `files.write_folder` does.
    """
    name = f"{found.origin.get('study', Path(reference).stem)}-{found.address}"
    if not set(formats) <= FILES if out is None else _is_folder(out, formats):
        return files.write_folder(found, out or Path(name), formats, check=check, latency=latency)
    path = out or Path(f"{name}.yaml")
    return files.Exported(path, files.write(found, path, formats), None)


def _is_folder(out: Path, formats: Sequence[str]) -> bool:
    """Whether `out` names a folder: it is one, or it has no ending and the formats need one."""
    if out.suffix in (".yaml", ".yml", ".safetensors"):
        return False
    return not set(formats) <= FILES or (out.suffix == "" and (not out.is_dir() or (out / ARCHITECTURE).is_file()))
