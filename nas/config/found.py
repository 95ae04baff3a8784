"""Finds a search by what people call it: a search file, or a study that exists."""

from __future__ import annotations

from pathlib import Path

from nas import location
from nas.config import searchfile
from nas.config.schema import SearchConfig
from nas.errors import StoreError, UsageError

SUFFIXES = (".yaml", ".yml")


def find_search(reference: str | Path, storage: str | None = None) -> SearchConfig:
    """The search in the file `reference`, or the one that the study of that name was started with.

    Raises UsageError for a file that is no search file, and if there is neither a file nor a study.
    """
    path = Path(reference)
    if path.exists() or path.suffix in SUFFIXES or len(path.parts) > 1:
        config = searchfile.load(path)
        return config.model_copy(update={"storage": location.storage_for(config, storage)})
    try:
        store, study = location.open_existing(str(reference), storage)
    except (StoreError, UsageError) as error:
        raise UsageError(
            f"There is neither a search file {str(reference)!r} nor a study of that name. {error}"
        ) from error
    store.close()
    where = location.url(location.storage_of(study.name, storage))
    return SearchConfig(**study.config).model_copy(update={"storage": where})
