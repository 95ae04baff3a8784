"""Finds a search by what people call it: a search file, or a study that exists."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from nas import location
from nas.config import searchfile
from nas.config.kinds import ENDINGS, is_database, near_file, python_file
from nas.config.schema import SearchConfig
from nas.errors import StoreError, UsageError
from nas.store import open_reader


def find_search(reference: str | Path, storage: str | None = None, changes: Sequence[str] = ()) -> SearchConfig:
    """The search in the file `reference`, or the one that the study of that name was started with.

    changes: `KEY=VALUE`, values in place of those in the file; a key is written `budget.trials`.

    Raises UsageError for a file that is no search file, such as a study database, and if there is neither a file nor a
    study.
    """
    path = Path(reference)
    if is_database(path):
        raise UsageError(_database(path))
    if other := python_file(path):
        raise UsageError(other)
    if not path.exists() and path.suffix in ENDINGS:
        raise UsageError(f"There is no file {str(path)!r}.{near_file(path)}")
    if (path.exists() and not path.is_dir()) or len(path.parts) > 1:
        config = searchfile.load(path, changes)
        return config.model_copy(update={"storage": location.storage_for(config, storage)})
    if changes:
        raise UsageError("--set changes a search file, but a study was named. Name its file.")
    try:
        store, study = location.open_existing(str(reference), storage)
    except (StoreError, UsageError) as error:
        raise UsageError(
            f"There is neither a search file {str(reference)!r} nor a study of that name. {error}"
        ) from error
    store.close()
    where = location.url(location.storage_of(study.name, storage))
    return SearchConfig.stored(study.config).model_copy(update={"storage": where})


def _database(path: Path) -> str:
    """What to do with a study database in place of a search file. Raises StoreError if it cannot be opened."""
    with open_reader(str(path)) as store:
        names = [study.name for study in store.studies()]
    held = f"It holds: {', '.join(names)}." if names else "It holds no study."
    name = names[0] if names else "STUDY"
    command = shlex.join(["nas", "search", name, "--storage", str(path)])
    return f"{path} is a study database, not a search file. {held} Name the study: `{command}`."
