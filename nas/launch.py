"""Starts a search, or goes on with one: the store, the study, the runner, the loop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from nas import assembly
from nas.config import SETTLED, SearchConfig
from nas.engine import Search
from nas.errors import UsageError
from nas.finals import Report
from nas.objectives.contract import Objective
from nas.reporting import Reporter
from nas.runners.contract import Runner
from nas.store import Store, Study, open_store
from searchspace.errors import SpaceError
from searchspace.space import Space
from searchspace.spacediff import diff


@dataclass(frozen=True)
class Result:
    """A study after its search: what `nas search` prints."""

    config: SearchConfig
    store: Store
    study: Study
    objectives: list[Objective]
    report: Report | None


def override(config: SearchConfig, *, storage: str | None = None, address: str | None = None) -> SearchConfig:
    """The same search on another database, or another Ray cluster."""
    changes: dict = {}
    if storage is not None:
        changes["storage"] = storage
    if address is not None:
        options = {**(config.runner.options if config.runner.name == "ray" else {}), "address": address}
        options.pop("workers", None)  # the cluster's own resources decide
        changes["runner"] = config.runner.model_copy(update={"name": "ray", "options": options})
    return config.model_copy(update=changes)


def search(config: SearchConfig, *, quiet: bool = False, runner: Runner | None = None) -> Result:
    """Run `config`'s search to the end of its budget. The same call again resumes; a larger budget continues.

    Raises NasError; after Ctrl-C that is `nas.engine.Interrupted`.
    """
    store = open_for(config)
    study = enter(store, config)
    first = assembly.objectives(config)[0]
    reporter = Reporter(
        store,
        study,
        budget=config.budget.trials,
        objective=first.name,
        maximize=first.direction == "maximize",
        quiet=quiet,
    )
    with reporter:
        running = Search(config, store, study, runner or assembly.runner(config), reporter)
        report = running.run()
    return Result(config, store, study, running.objectives, report)


def open_for(config: SearchConfig) -> Store:
    """The study database; the folder of a SQLite file is made if it is missing."""
    if config.storage.startswith("sqlite"):
        file = make_url(config.storage).database
        if file:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
    return open_store(config.storage)


def enter(store: Store, config: SearchConfig) -> Study:
    """The study `config` names: made if it is new, else checked to be the same search, and grown if it has grown."""
    if config.study not in {study.name for study in store.studies()}:
        task = assembly.prepared_task(config)
        try:
            return store.create_study(
                config.study,
                config.model_dump(mode="json"),
                config.space,
                config.seed,
                [{"name": o.name, "direction": str(o.direction)} for o in assembly.objectives(config)],
                data_hash=task.data_hash or None,
            )
        except UsageError:
            pass  # another process made it a moment ago
    study = store.study(config.study)
    _check_same(study, config)
    _grow(store, study, config)
    store.update_study(study.id, config=config.model_dump(mode="json"))
    return study


def _check_same(study: Study, config: SearchConfig) -> None:
    """Raise UsageError when `config` would make trials that cannot be compared with those of the study."""
    before, now = SearchConfig(**study.config), config
    changed = [name for name in SETTLED if getattr(before, name) != getattr(now, name)]
    if changed:
        raise UsageError(
            f"The study {study.name!r} was begun with another {' and '.join(changed)}, so its trials could not be "
            f"compared: {'; '.join(f'{n} was {getattr(before, n)!r}, is {getattr(now, n)!r}' for n in changed)}. "
            f"Give the search a new name (study: ...)."
        )
    task = assembly.prepared_task(config)
    if study.data_hash and task.data_hash != study.data_hash:
        raise UsageError(
            f"The data of study {study.name!r} have changed since it was begun (SHA-256 {study.data_hash[:12]} then, "
            f"{task.data_hash[:12]} now), so its trials could not be compared. Give the search a new name (study: ...)."
        )


def _grow(store: Store, study: Study, config: SearchConfig) -> None:
    """Note a larger space; refuse one that has lost points that trials may stand on."""
    newest = store.space_versions(study.id)[-1].text
    if newest == config.space:
        return
    change = diff(Space.parse(newest, "the study's space"), Space.parse(config.space, "the new space"))
    if not change.larger:
        raise SpaceError(
            f"The space of study {study.name!r} may grow but not shrink; gone: {'; '.join(change.removed)}. "
            "Give the search a new name (study: ...)."
        )
    store.add_space_version(study.id, config.space)
