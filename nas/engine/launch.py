"""Starts or resumes a search: opens the store, enters the study, starts the runner, runs the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from nas import location
from nas import report as reports
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine.ending import same_trials
from nas.engine.loop import Search
from nas.engine.resolve import Resolved, resolve
from nas.engine.units import kind_of_failure
from nas.errors import StoreError, Unreachable, UsageError
from nas.finals.again import check_ended
from nas.finals.verdict import Verdict
from nas.objectives.contract import Objective
from nas.report.console import Reporter
from nas.report.header import Header, header
from nas.runners.contract import LaterRunner, Runner
from nas.store import Store, Study, Trial, open_store
from nas.upkeep import cleaning
from nas.upkeep.places import check_storage, make_checkpoints
from searchspace.model.architecture import Architecture
from searchspace.wording import plural


@dataclass(frozen=True, repr=False)
class Result:
    """A study after its search. Close it, or use it in a `with` statement.

    verdict: how the finals ended; None if the search file asks for none, or no finalist has a result.
    """

    config: SearchConfig
    store: Store
    study: Study
    objectives: list[Objective]
    verdict: Verdict | None

    @property
    def best(self) -> Trial | None:
        """The best trial by the first objective, among those trained longest; None if no trial has finished."""
        return next(iter(reports.best(self.store, self.study, None, 1)), None)

    @property
    def front(self) -> list[Trial]:
        """The trials on the Pareto front, among those trained longest."""
        return reports.front(self.store, self.study)

    @property
    def header(self) -> Header:
        """How the search went: trials started of those planned, failures, seeds, what the budget cut off."""
        return header(self.store, self.study)

    def architecture(self, trial: int | None = None) -> Architecture:
        """The architecture of a trial, by default of the best. Raises UsageError if there is no such trial."""
        number = trial if trial is not None else self.best.number if self.best else -1
        return Architecture.parse(self.store.trial(self.study.id, number).architecture)

    def close(self) -> None:
        """Close the study database."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        best = self.best
        values = {} if best is None else {name: round(value, 4) for name, value in best.values.items()}
        found = "no finished trial" if best is None else f"best trial {best.number} {values}"
        return f"<Result of study {self.study.name!r}: {found}, {len(self.front)} on the front>"


def override(config: SearchConfig, *, storage: str | None = None, address: str | None = None) -> SearchConfig:
    """The same search with another database, or on another Ray cluster."""
    changes: dict = {}
    if storage is not None:
        changes["storage"] = storage
    if address is not None:
        options = {**(config.runner.options if config.runner.name == "ray" else {}), "address": address}
        options.pop("workers", None)  # the cluster's own resources decide
        changes["runner"] = config.runner.model_copy(update={"name": "ray", "options": options})
    return config.model_copy(update=changes)


def search(
    config: SearchConfig, *, quiet: bool = False, runner: Runner | None = None, retry_failed: str | None = None
) -> Result:
    """Run `config`'s search to the end of its budget. The same call again resumes; a larger budget continues.

    retry_failed: a kind of failure; failed trials of this kind are tried again first. Raises NasError; after Ctrl-C
    that is `nas.engine.loop.Interrupted`.
    """
    if retry_failed is not None:
        kind_of_failure(retry_failed)
    store, found = opened(config, here=runner is None, again=retry_failed is not None)
    with _closed_after_an_error(store):
        study = enter(store, found)
        return _run(store, study, found, quiet, runner, retry_failed=retry_failed)


def finals(config: SearchConfig, *, quiet: bool = False, runner: Runner | None = None) -> Result:
    """Run the finals of `config` alone, for a study that has ended. If the study is new, the search runs first.

    Raises NasError, also for a study whose search has not ended.
    """
    store, found = opened(config, here=runner is None)
    with _closed_after_an_error(store):
        if found.study is None:
            return _run(store, enter(store, found), found, quiet, runner)
        check_ended(store, found.study)
        kept = SearchConfig.stored(found.study.config).finals  # the study keeps those of its search file
        config = found.config.model_copy(update={"finals": kept})
        study = enter(store, replace(found, config=config))
        return _run(store, study, found, quiet, runner, extends=kept.model_dump(mode="json"))


@contextmanager
def _closed_after_an_error(store: Store) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise


def _run(
    store: Store,
    study: Study,
    found: Resolved,
    quiet: bool,
    runner: Runner | None,
    *,
    extends: Mapping[str, Any] | None = None,
    retry_failed: str | None = None,
) -> Result:
    """Run a study. extends: the finals of its search file, if those of `found` alone are run."""
    config = found.config
    if found.trains:
        make_checkpoints(config.checkpoints, config.study, config.storage)
    first = parts(config).objectives[0]
    reporter = Reporter(
        store,
        study,
        budget=config.budget.trials or 0,
        objective=first.name,
        maximize=first.direction == "maximize",
        quiet=quiet,
        config=config,
    )
    with reporter:
        start = partial(_runner, config, reporter.say)
        chosen = runner or (start() if found.trains else LaterRunner(start))
        reporter.say("Building the space, the objectives and the baselines")
        running = Search(config, store, study, chosen, reporter, extends=extends, ended=found.over)
        if any(each.settled and each.stage == "cost" for each in running.objectives):
            reporter.say("Measuring latencies on this machine; the first trials wait for them")
        if retry_failed is not None:
            reporter.say(_retried(running, retry_failed))
        reporter.watch(chosen.progress)
        if not found.over and extends is None:  # finals leave an ended search ended
            store.update_study(study.id, ending=None)
        verdict = running.run()
        if said := _cleaned(store, study.name):
            reporter.say(said)
    return Result(config, store, store.study(study.name), running.objectives, verdict)


def _runner(config: SearchConfig, say: Callable[[str], None]) -> Runner:
    """The runner that the search file names, started."""
    if config.runner.name == "ray":
        address = config.runner.options.get("address")
        say(f"Connecting to the Ray cluster at {address}" if address else "Starting Ray on this machine")
    return parts(config).runner(say)


def _cleaned(store: Store, study: str) -> str:
    """Remove what `study` no longer needs -> what was removed, for people. The results are there in any case."""
    try:
        removed = cleaning.clean(store, store.study(study), location.CACHE)
    except Unreachable as error:
        again = location.command(store, study, "clean", study)
        return f"Files that are no longer needed stay. {error} `{again}` tries again."
    return f"Removed files that are no longer needed: {cleaning.summary(removed)}" if removed else ""


def _retried(running: Search, kind: str) -> str:
    """Queue the failed trials of this kind again -> what was done, for people."""
    count = running.proposer.retry(kind)
    failed = running.store.failures(running.study.id)
    finals = sum(each.final is not None and each.error_kind == kind for each in failed)
    said = f"Failed trials that are tried again: {count}"
    return f"{said}. {plural(finals, 'final')} failed too ({kind}); finals are not tried again." if finals else said


def opened(config: SearchConfig, *, here: bool = True, again: bool = False) -> tuple[Store, Resolved]:
    """The study database, and what a search of `config` has before it. A new search that is refused makes no file.

    here, again: as of `resolve`. Raises what that raises, and StoreError if the database cannot be made.
    """
    first = begins_file(check_storage(config.storage))
    found = resolve(config, here=here, again=again) if first else None
    store = open_for(config)
    with _closed_after_an_error(store):
        return store, found or resolve(config, store, here=here, again=again)


def open_for(config: SearchConfig) -> Store:
    """The study database. The folder of a SQLite file is created; raises StoreError if that is impossible."""
    file = check_storage(config.storage)
    if file is not None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The folder of the study database {file} cannot be made: {error}.") from error
    return open_store(config.storage)


def begins_file(file: Path | None) -> bool:
    """Whether a study would be the first in this SQLite file: it does not exist, or is empty. None is PostgreSQL."""
    return file is not None and (not file.exists() or not file.stat().st_size)


def enter(store: Store, found: Resolved) -> Study:
    """The study of a resolved search file. It is created if it is new; else its row and its space are brought up to it.

    Raises UsageError or SpaceError if another process has created another search of this name meanwhile.
    """
    config, study = found.config, found.study
    if study is None:
        built = parts(config)
        try:
            return store.create_study(
                config.study,
                found.row,
                config.space,
                config.seed,
                _described(built.objectives),
                data_hash=built.prepared_task.data_hash or None,
            )
        except UsageError:  # another process created it a moment ago
            found = resolve(config, store)
            study = store.study(config.study)
    if found.space_grows:
        store.add_space_version(study.id, config.space)
    if found.row != study.config:
        ending = study.ending if same_trials(found.row, study.config) else None
        store.update_study(study.id, config=found.row, ending=ending)
    return store.study(config.study)


def _described(objectives: Sequence[Objective]) -> list[dict[str, str]]:
    """What the study stores about its objectives; stages only if one is a probe, because reports audit probes."""
    known = [each for each in objectives if each.stage != "later"]  # with its first value the study lists it too
    stages = ["cost" if each.settled else each.stage for each in known]  # a measured latency is no guess
    told = [{"stage": stage} if "probe" in stages else {} for stage in stages]
    return [
        {"name": each.name, "direction": str(each.direction), **stage} for each, stage in zip(known, told, strict=True)
    ]
