"""Starts or resumes a search: opens the store, enters the study, starts the runner, runs the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from nas import location
from nas import report as reports
from nas.config import factory
from nas.config.checks import is_latency_here
from nas.config.schema import SearchConfig
from nas.engine.checks import continuing, starting
from nas.engine.ending import have_ended, is_over, same_trials
from nas.engine.learned import with_learned
from nas.engine.loop import Search
from nas.engine.settled import settle
from nas.engine.units import kind_of_failure
from nas.errors import StoreError, Unreachable, UsageError
from nas.finals.again import check_ended
from nas.finals.result import Report
from nas.objectives.contract import Objective
from nas.report.console import Reporter
from nas.report.header import Header, header
from nas.runners.contract import LaterRunner, Runner
from nas.store import Reader, Store, Study, Trial, open_store
from nas.upkeep import cleaning
from nas.upkeep.places import check_storage, make_checkpoints
from searchspace.model.architecture import Architecture
from searchspace.wording import plural


@dataclass(frozen=True, repr=False)
class Result:
    """A study after its search. Close it, or use it in a `with` statement.

    report: how the finals ended; None if the search file asks for none.
    """

    config: SearchConfig
    store: Store
    study: Study
    objectives: list[Objective]
    report: Report | None

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
    store = _open(config, runner)
    with _closed_after_an_error(store):
        return _search(store, config, quiet, runner, retry_failed=retry_failed)


def finals(config: SearchConfig, *, quiet: bool = False, runner: Runner | None = None) -> Result:
    """Run the finals of `config` alone, for a study that has ended. If the study is new, the search runs first.

    Raises NasError, also for a study whose search has not ended.
    """
    store = _open(config, runner)
    with _closed_after_an_error(store):
        ended = next((each for each in store.studies() if each.name == config.study), None)
        if ended is not None:
            check_ended(store, ended)
        return _search(store, config, quiet, runner, finals_only=ended is not None)


@contextmanager
def _closed_after_an_error(store: Store) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise


def _search(
    store: Store,
    config: SearchConfig,
    quiet: bool,
    runner: Runner | None,
    *,
    finals_only: bool = False,
    retry_failed: str | None = None,
) -> Result:
    known = next((each for each in store.studies() if each.name == config.study), None)
    unusable, over, trains = "", False, True
    if known is not None and retry_failed is None:
        over, trains = _left(store, known, config)
    if known is None or trains:
        # before the study is there, and before something is trained in vain
        starting.check_trains(config, here=runner is None)
        make_checkpoints(config.checkpoints, config.study, config.storage)
    else:
        config, unusable = starting.usable(config, SearchConfig.stored(known.config), here=runner is None)
    asked = SearchConfig.stored(known.config).finals if known and finals_only else config.finals
    extends = asked.model_dump(mode="json") if finals_only else None
    study = enter(store, config.model_copy(update={"finals": asked}))  # it keeps those of the search file
    config = settle(config, SearchConfig.stored(study.config))
    first = factory.objectives(config)[0]
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
        if unusable:
            reporter.say(f"Nothing is trained, and the study keeps its runner, device and checkpoints. {unusable}")
        start = partial(_runner, config, reporter.say)
        chosen = runner or (start() if trains else LaterRunner(start))
        reporter.say("Building the space, the objectives and the baselines")
        running = Search(config, store, study, chosen, reporter, extends=extends, ended=over)
        if any(map(is_latency_here, config.objectives)):
            reporter.say("Measuring latencies on this machine; the first trials wait for them")
        if retry_failed is not None:
            reporter.say(_retried(running, retry_failed))
        reporter.watch(chosen.progress)
        if not over and not finals_only:  # finals leave an ended search ended
            store.update_study(study.id, ending=None)
        report = running.run()
        if said := _cleaned(store, study.name):
            reporter.say(said)
    return Result(config, store, store.study(study.name), running.objectives, report)


def _runner(config: SearchConfig, say: Callable[[str], None]) -> Runner:
    """The runner that the search file names, started."""
    if config.runner.name == "ray":
        address = config.runner.options.get("address")
        say(f"Connecting to the Ray cluster at {address}" if address else "Starting Ray on this machine")
    return factory.runner(config, say)


def _cleaned(store: Store, study: str) -> str:
    """Remove what `study` no longer needs -> what was removed, for people. The results are there in any case."""
    try:
        removed = cleaning.clean(store, store.study(study), factory.CACHE)
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


def _open(config: SearchConfig, runner: Runner | None) -> Store:
    """As `open_for`. A new search that is refused makes no file."""
    if begins_file(check_storage(config.storage)):
        starting.check_trains(config, here=runner is None)
        check_first(config)
    return open_for(config)


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


def check_first(config: SearchConfig) -> None:
    """Raise UsageError if `enter` would refuse the study that would be the first in its file. It makes no file."""
    starting.check_finals(config, known=False)
    starting.check_new(config, factory.objectives(config))
    settle(with_learned(config))


def enter(store: Store, config: SearchConfig) -> Study:
    """The study that `config` names. It is created if it is new; else its space grows if that of `config` has.

    The study keeps the options that `nas.engine.settled` settles, also those that the search file leaves out. Raises
    UsageError or SpaceError if the study there is another search, if the finals cannot be decided, or if an objective
    of a new study cannot be evaluated.
    """
    known = config.study in {study.name for study in store.studies()}
    starting.check_finals(config, known=known)
    if not known:
        task, objectives = factory.prepared_task(config), factory.objectives(config)
        starting.check_new(config, objectives)
        settled = _with_facts(settle(with_learned(config, store)))
        try:
            return store.create_study(
                config.study,
                _kept(settled),
                config.space,
                config.seed,
                _described(objectives),
                data_hash=task.data_hash or None,
            )
        except UsageError:
            pass  # another process created it a moment ago
    study = store.study(config.study)
    if continuing.check_continues(store, study, config):
        store.add_space_version(study.id, config.space)
    kept = _continued(study, config)
    if kept != study.config:
        ending = study.ending if same_trials(kept, study.config) else None
        store.update_study(study.id, config=kept, ending=ending)
    return store.study(config.study)


def _continued(study: Study, config: SearchConfig) -> dict[str, Any]:
    """What `study` stores if `config` continues it."""
    before = SearchConfig.stored(study.config)
    return _kept(_with_facts(settle(config, before), before.data_facts))


def may_train(store: Reader, study: Study | None, config: SearchConfig) -> bool:
    """Whether a search of `config` may train something; if not, it only shows the result of `study`.

    study: the one that `config` names; None if it is new. `nas plan` calls it too. Raises UsageError for an option that
    is invalid.
    """
    return study is None or _left(store, study, config)[1]


def _left(store: Reader, study: Study, config: SearchConfig) -> tuple[bool, bool]:
    """(whether the search of `study` is over, whether a search of `config` may train something)."""
    if not study.ending:
        return False, True
    options = _continued(study, config)
    over = is_over(store, study, options)
    return over, not (over and have_ended(store, study, options["finals"]))


def _described(objectives: Sequence[Objective]) -> list[dict[str, str]]:
    """What the study stores about its objectives; stages only if one is a probe, because reports audit probes."""
    known = [each for each in objectives if each.stage != "later"]  # with its first value the study lists it too
    stages = ["cost" if each.settled else each.stage for each in known]  # a measured latency is no guess
    told = [{"stage": stage} if "probe" in stages else {} for stage in stages]
    return [
        {"name": each.name, "direction": str(each.direction), **stage} for each, stage in zip(known, told, strict=True)
    ]


def _with_facts(config: SearchConfig, known: dict[str, Any] | None = None) -> SearchConfig:
    """`config` with the facts about its data: those that the study knows, or those that the task tells."""
    facts = known or factory.prepared_task(config).data_facts() or None
    return config.model_copy(update={"data_facts": facts})


def _kept(config: SearchConfig) -> dict[str, Any]:
    """What the study stores of a search file: everything but the URL of the database, which may hold a password."""
    return config.model_dump(mode="json", exclude={"storage"})
