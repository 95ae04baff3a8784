"""The finals of something that exists: a study that has ended, or one architecture on the task of a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nas import location, tasks
from nas.config.checks import find_final_baseline
from nas.config.parts import parts
from nas.config.schema import Budget, GivenBaseline, Named, SearchConfig
from nas.errors import UsageError
from nas.finals.plan import baselines, kind, lengths
from nas.report.finals import answers
from nas.store import Store, Study, UnitState, open_reader
from nas.tasks.contract import Task
from nas.tasks.fields import fitted
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture


def extended(
    config: SearchConfig, *, against: Sequence[str] = (), steps: Sequence[int] = (), seeds: int | None = None
) -> SearchConfig:
    """The search with other finals. Runs that its study has already are used again.

    against: further baselines, each a name or a file; one of the same name is replaced. steps: lengths of training;
    none keeps those of the search. seeds: None keeps them. Raises UsageError or SpaceError for a baseline that cannot
    be used.
    """
    finals = config.finals
    task = parts(config).prepared_task
    added = tuple(_baseline(name, task, kind(config)) for name in dict.fromkeys(against))
    changes = {
        "top": finals.top or 1,
        "steps": tuple(sorted(set(steps))) or lengths(config),
        "seeds": finals.seeds if seeds is None else seeds,
        "baselines": tuple({_name(each): each for each in (*baselines(config), *added)}.values()),
    }
    return config.model_copy(update={"finals": finals.model_copy(update=changes)})


def as_judged(config: SearchConfig) -> SearchConfig:
    """The search of a study with the finals of its newest verdict, which may extend those of the search file.

    Raises StoreError if the study cannot be read.
    """
    with open_reader(config.storage) as store:
        study = store.study(config.study)
        verdict = store.verdict(study.id)
    if verdict is None or not answers(verdict.document, study.config.get("finals")):
        return config
    judged = SearchConfig.stored({**study.config, "finals": verdict.document["finals"]})
    return config.model_copy(update={"finals": judged.finals})


def _name(baseline: str | GivenBaseline) -> str:
    return baseline if isinstance(baseline, str) else baseline.name


def _baseline(name: str, task: Task, kind: str) -> str | GivenBaseline:
    try:
        return find_final_baseline(name, Path(), task, kind)
    except SpaceError:  # names the place in the file
        raise
    except ValueError as error:
        raise UsageError(f"The baseline {name} cannot be used: {error}") from error


def of_architecture(architecture: Architecture, search: SearchConfig) -> SearchConfig:
    """A search of this one architecture, with the task, recipe, runner and finals of `search`, in a study of its own.

    Raises UsageError if the architecture does not fit the task.
    """
    task = parts(search).prepared_task
    model = fitted(architecture, task)
    try:
        tasks.check(task, model.root)
    except ValueError as error:
        raise UsageError(f"The architecture does not fit the task of {search.study!r}: {error}") from error
    name = f"{search.study}-{model.hash[:8]}"
    return search.model_copy(
        update={
            "study": name,
            "space": model.text(),
            "strategy": Named(name="random"),
            "scheduler": Named(name="full", options={"steps": lengths(search)[0]}),
            "budget": Budget(trials=1),
            "arms": {},
            "baselines": (),
            "storage": search.storage.replace(f"/{search.study}.", f"/{name}."),
            "checkpoints": search.checkpoints and f"{search.checkpoints}-{model.hash[:8]}",
            "finals": search.finals.model_copy(update={"top": 1, "steps": lengths(search)}),
        }
    )


def check_ended(store: Store, study: Study) -> None:
    """Raise UsageError if the search of `study` has not ended: its best trial may still change."""
    open_units = store.open_units(study.id)
    left = open_units[UnitState.QUEUED] + open_units[UnitState.RUNNING]
    finals = any(count.purpose == "final" for count in store.counts(study.id))
    if study.ending is None and not finals and left:
        command = location.command(store, study.name, "search", study.name)
        raise UsageError(
            f"The search of {study.name!r} has not ended: {left} {'unit is' if left == 1 else 'units are'} left. "
            f"`{command}` continues it."
        )
