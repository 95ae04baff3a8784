"""Finds an architecture by what people call it: a file, a name of the zoo, or a trial of a study."""

from __future__ import annotations

import os
from pathlib import Path

from nas.errors import UsageError
from searchspace import zoo
from searchspace.architecture import Architecture
from searchspace.errors import nearest


def find(reference: str, storage: str | None = None) -> Architecture:
    """The architecture in the file `reference`, of that name in the zoo, or of trial N where it reads STUDY:N.

    Raises UsageError saying where it was looked for.
    """
    if Path(reference).is_file():
        return Architecture.load(reference)
    if reference in zoo.names():
        return zoo.load(reference)
    study, colon, number = reference.rpartition(":")
    if colon and number.isdigit():
        return of_trial(study, int(number), storage)
    near = nearest(reference, zoo.names())
    raise UsageError(
        f"There is no file {reference!r}, and no architecture of the zoo has that name.{near} "
        f"The zoo: {', '.join(zoo.names())}. A trial is written STUDY:NUMBER."
    )


def of_trial(study: str, number: int, storage: str | None = None) -> Architecture:
    """The architecture of trial `number` of `study`."""
    from nas.store import open_store  # a file or a name of the zoo needs no database

    url = storage or os.environ.get("NAS_STORAGE") or f"sqlite:///runs/{study}.db"
    store = open_store(url, create=False)
    return Architecture.parse(store.trial(store.study(study).id, number).architecture, f"{study}:{number}")
