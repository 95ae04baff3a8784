"""Whether a search file continues a study: new trials can be compared with those that are there.

`nas plan` makes the same check, so both commands reject the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nas.config import factory
from nas.config.schema import SETTLED, Named, SearchConfig
from nas.engine.settled import settle
from nas.errors import UsageError
from nas.store import Reader, Study
from searchspace.errors import SpaceError
from searchspace.space.space import Space
from searchspace.space.spacediff import diff


def check_continues(store: Reader, study: Study, config: SearchConfig) -> bool:
    """Whether the space of `config` is larger than that of `study`; writes nothing.

    Raises UsageError if new trials could not be
    compared with those of the study, SpaceError if the space has lost points.
    """
    _check_same(study, config)
    return _has_grown(store, study, config)


def _check_same(study: Study, config: SearchConfig) -> None:
    """Raise UsageError if trials of `config` could not be compared with those of the study."""
    before = SearchConfig.stored(study.config)
    _check_blocks(study, before, config)
    config = settle(config, before)
    changed = [
        f"{name} was {_short(then)}, is {_short(now)}"
        for name in SETTLED
        if (then := _settled(before, name)) != (now := _settled(config, name))
    ]
    if before.task_source != config.task_source and not changed:
        changed = [f"the text of the task file {config.task.name} has changed"]
    if changed:
        raise UsageError(
            f"The study {study.name!r} was started with other settings, so new trials could not be compared with its "
            f"own: {'; '.join(changed)}. Restore them, or give the search a new name (study: ...)."
        )
    found = factory.prepared_task(config).data_hash
    if (study.data_hash or "") != found:
        raise UsageError(
            f"The data of study {study.name!r} have changed since it started (SHA-256 {_digits(study.data_hash)} "
            f"then, {_digits(found)} now), so new trials could not be compared with its own. Give the search a new "
            "name (study: ...)."
        )


def _check_blocks(study: Study, before: SearchConfig, config: SearchConfig) -> None:
    """Raise UsageError if a text of the user's own blocks is missing; files may be renamed and added."""
    texts = set(config.blocks.values())
    missing = [name for name, text in before.blocks.items() if text not in texts]
    if missing:
        what = (
            "has changed"
            if all(name in config.blocks for name in missing)
            else "is not among `blocks`, or has changed,"
        )
        raise UsageError(
            f"The text of {', '.join(missing)} {what} since the study {study.name!r} started, so new trials could "
            "not be compared with its own. Restore it, or give the search a new name (study: ...)."
        )


def _settled(config: SearchConfig, name: str) -> Any:
    """A setting that may not change, as it is written in a search file.

    Of the task's files only the names count: their content is compared by its hash, and folders differ by machine.
    """
    value = getattr(config, name)
    if isinstance(value, tuple):
        return [each.written() for each in value]
    if name == "arms":
        return {arm: each.written() for arm, each in value.items()}
    written = value.written() if isinstance(value, Named) else value
    return _without_folders(written) if name == "task" else written


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_folders(key): _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _digits(hash: str | None) -> str:
    return hash[:12] if hash else "none"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _has_grown(store: Reader, study: Study, config: SearchConfig) -> bool:
    """Whether the space is larger than before. Raises SpaceError if it has lost points that trials may have."""
    newest = store.space_versions(study.id)[-1].text
    if newest == config.space:
        return False
    change = diff(Space.parse(newest, "the study's space"), factory.space(config))
    if not change.larger:
        raise SpaceError(
            f"The space of study {study.name!r} may grow but not shrink; gone: {'; '.join(change.removed)}. "
            "Give the search a new name (study: ...)."
        )
    return True
