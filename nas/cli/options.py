"""The arguments and options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from nas.store import Store, Study, open_store

StudyName = Annotated[str, typer.Argument(help="The study's name, as in its search file.", show_default=False)]
Storage = Annotated[
    str | None,
    typer.Option(
        help="The study database: a SQLAlchemy URL or a SQLite file. Default: $NAS_STORAGE, else runs/STUDY.db.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=1, help="How many rows.")]
SearchFile = Annotated[Path, typer.Argument(help="A search file (YAML).", show_default=False)]
ArchitectureName = Annotated[
    str,
    typer.Argument(
        metavar="ARCHITECTURE",
        help="An architecture file, a name of the zoo, or STUDY:TRIAL.",
        show_default=False,
    ),
]


def storage_url(study: str, storage: str | None) -> str:
    """Where `study` is kept when nobody says: the environment's database, else the SQLite file of its name."""
    return storage or os.environ.get("NAS_STORAGE") or f"sqlite:///runs/{study}.db"


def open_existing(study: str, storage: str | None) -> tuple[Store, Study]:
    """The store and the study in it. Raises StoreError when either is not there."""
    store = open_store(storage_url(study, storage), create=False)
    return store, store.study(study)
