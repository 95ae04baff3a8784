"""Finds an architecture by what people call it: a file, a name of the zoo, or a trial of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nas.config.kinds import ENDINGS, near_file, not_an_architecture
from nas.errors import UsageError
from nas.files import is_file, is_folder
from searchspace import zoo
from searchspace.errors import SpaceError, nearest
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from searchspace.tree import Scalar

HEXADECIMAL = set("0123456789abcdef")


def as_architecture(given: Architecture | str | Path) -> Architecture:
    """`given` itself, or what YAML text, a path or a name describes.

    Raises UsageError if there is no such file, name or trial, or for another type; SpaceError if the text is not an
    architecture.
    """
    if isinstance(given, Architecture):
        return given
    if not isinstance(given, str | Path) or not str(given).strip():
        raise UsageError(
            "An architecture is an Architecture, YAML text, the path of a file, a name of the zoo such as primer:tiny, "
            f"or STUDY:TRIAL, but got {given!r} ({type(given).__name__})."
        )
    text = str(given)
    is_text = "\n" in text or text.lstrip().startswith(("{", "kind:"))
    return Architecture.parse(text) if is_text else find(text)


def find(
    reference: str,
    storage: str | None = None,
    given: Callable[[], Mapping[str, Scalar]] = dict,
    folder: Path | None = None,
) -> Architecture:
    """The architecture in the file `reference`, of that NAME or NAME:SIZE in the zoo, or of STUDY:TRIAL or STUDY:HASH.

    given: makes values of fields that a file may leave out, such as `vocabulary`; called for an incomplete file.
    folder: to which the name of a file is relative; None is the current folder.

    Raises UsageError if there is none, SpaceError if a file is not an architecture.
    """
    file = reference if folder is None else str(folder / reference)
    if is_file(Path(file)):
        return _of_file(file, given)
    if in_zoo(reference):
        name, _, size = reference.partition(":")
        return zoo.load(name, size or zoo.BASE)
    # Not at the top: a file or a name of the zoo needs no database.
    from nas.location import HASH_DIGITS, known_studies, trial_reference

    trial = trial_reference(reference)
    if trial:
        return of_trial(trial[0], trial[1], storage)
    study, _, digits = reference.rpartition(":")
    if study and len(digits) >= HASH_DIGITS and set(digits) <= HEXADECIMAL:
        return _of_hash(study, digits, storage)
    if is_folder(Path(file)):
        raise UsageError(f"{file!r} is a folder: name a file in it.")
    if Path(file).suffix in ENDINGS:
        raise UsageError(f"There is no file {file!r}.{near_file(Path(file))}")
    name = study or reference
    if name in known_studies():
        raise UsageError(
            f"{name!r} is a study. An architecture of it is written {name}:NUMBER, as in {name}:0; one of its finals "
            f"{name}:final-1."
        )
    raise UsageError(
        f"There is no file {reference!r}, and no such name in the zoo.{nearest(reference, zoo.names())} "
        f"The zoo: {', '.join(zoo.names())}. A trial is written STUDY:NUMBER, as in quickstart:17, and a final "
        "quickstart:final-2."
    )


def in_zoo(reference: str) -> bool:
    """Whether `reference` is NAME or NAME:SIZE of the zoo; not STUDY:TRIAL or STUDY:HASH of a study with its name."""
    name, colon, size = reference.partition(":")
    return name in zoo.names() and (not colon or bool(set(size) - HEXADECIMAL))


def of_file(path: str | Path, given: Mapping[str, Scalar] | None = None) -> Architecture:
    """The architecture in a file. `given` fields are filled in if the file leaves them out, also optional ones such as
    `classes`.

    Raises SpaceError for a file that is not an architecture, UsageError if it is of another kind.
    """
    try:
        return Architecture.load(path, given=given)
    except SpaceError:
        if other := not_an_architecture(Path(path)):
            raise UsageError(other) from None
        raise


def _of_file(path: str, given: Callable[[], Mapping[str, Scalar]]) -> Architecture:
    try:
        return of_file(path)
    except SpaceError:
        fields = given()
        if not fields:
            raise
    return Architecture.load(path, given=fields)


def of_trial(study: str, number: int, storage: str | None = None) -> Architecture:
    """The architecture of trial `number` of `study`. Raises UsageError or StoreError if there is none."""
    store, found = _open(study, storage)
    with store:
        trial = store.trial(found.id, number)
        return Architecture.parse(trial.architecture, f"{study}:{trial.address}")


def _of_hash(study: str, digits: str, storage: str | None) -> Architecture:
    store, _ = _open(study, storage)
    with store:
        return Architecture.parse(store.architecture(digits)[1], f"{study}:{digits}")


def _open(study: str, storage: str | None) -> tuple[Reader, Study]:
    from nas.location import open_existing  # a file or a name of the zoo needs no database

    return open_existing(study, storage)
