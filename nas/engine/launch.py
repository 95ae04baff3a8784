"""Starts or resumes a search: opens the store, enters the study, starts the runner, runs the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from nas import location
from nas import report as reports
from nas.config import checks, factory
from nas.config.schema import SETTLED, Named, SearchConfig
from nas.engine.ending import same_trials, trains_nothing
from nas.engine.forecast import forecast
from nas.engine.learned import with_learned
from nas.engine.loop import Search
from nas.engine.settled import settle
from nas.engine.units import kind_of_failure
from nas.errors import AnswerProblem, NasError, StoreError, Unreachable, UsageError
from nas.finals.again import check_ended
from nas.finals.result import Report
from nas.objectives import contract
from nas.objectives.contract import Objective
from nas.report.console import Reporter
from nas.report.header import Header, header
from nas.runners.contract import Runner
from nas.store import Reader, Store, Study, Trial, open_store
from nas.store.opening import damage_of_opened
from nas.training.unit import device_here
from nas.upkeep import cleaning
from nas.upkeep.places import check_checkpoints, check_storage, make_checkpoints
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space
from searchspace.space.spacediff import diff
from searchspace.wording import plural

PLACES = ("runner", "device", "checkpoints")  # where units run, and where they write


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
    """Close the store after an error. If its rows are damaged, that explains an error that the user cannot correct."""
    try:
        yield
    except BaseException as error:
        store.close()
        is_clear = isinstance(error, NasError | SpaceError) or not isinstance(error, Exception)
        is_clear &= not isinstance(error, AnswerProblem)  # schedulers and strategies learn from what the rows say
        if not is_clear and (damaged := damage_of_opened()) is not None:
            raise damaged from error
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
    unusable = ""
    if known is None or retry_failed is not None or may_train(store, known, config):
        # before the study is there, and before something is trained in vain
        check_trains(config, here=runner is None)
        make_checkpoints(config.checkpoints, check_storage(config.storage))
    else:
        config, unusable = _usable(config, SearchConfig.stored(known.config), here=runner is None)
    study = enter(store, config)
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
        if runner is None and config.runner.name == "ray":
            address = config.runner.options.get("address")
            reporter.say(f"Connecting to the Ray cluster at {address}" if address else "Starting Ray on this machine")
        chosen = runner or factory.runner(config, reporter.say)
        reporter.say("Building the space, the objectives and the baselines")
        running = Search(config, store, study, chosen, reporter, finals_only=finals_only)
        if any(map(checks.is_latency_here, config.objectives)):
            reporter.say("Measuring latencies on this machine; the first trials wait for them")
        if retry_failed is not None:
            reporter.say(_retried(running, retry_failed))
        reporter.watch(chosen.progress)
        if not finals_only:  # finals leave an ended search ended
            store.update_study(study.id, ending=None)
        report = running.run()
        if said := _cleaned(store, study.name):
            reporter.say(said)
    return Result(config, store, store.study(study.name), running.objectives, report)


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
        check_trains(config, here=runner is None)
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
    check_finals(config, known=False)
    check_new(config, factory.objectives(config))
    settle(with_learned(config))


def enter(store: Store, config: SearchConfig) -> Study:
    """The study that `config` names. It is created if it is new; else its space grows if that of `config` has.

    The study keeps the options that `nas.engine.settled` settles, also those that the search file leaves out. Raises
    UsageError or SpaceError if the study there is another search, if the finals cannot be decided, or if an objective
    of a new study cannot be evaluated.
    """
    known = config.study in {study.name for study in store.studies()}
    check_finals(config, known=known)
    if not known:
        task, objectives = factory.prepared_task(config), factory.objectives(config)
        check_new(config, objectives)
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
    store.check_study(study.id)
    if check_continues(store, study, config):
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
    if study is None or not study.ending:
        return True
    return not trains_nothing(store, study, _continued(study, config))


def check_new(config: SearchConfig, objectives: Sequence[Objective]) -> None:
    """Raise UsageError if an objective of a new study cannot be evaluated on this machine, or is a metric that the
    task does not return.
    """
    for each in objectives:
        each.begin(contract.Search())
    try:
        checks.check_returned(config, objectives)
    except ValueError as error:
        raise UsageError(f"objectives: {error}.") from None


def _described(objectives: Sequence[Objective]) -> list[dict[str, str]]:
    """What the study stores about its objectives; stages only if one is a probe, because reports audit probes."""
    known = [each for each in objectives if each.stage != "later"]  # with its first value the study lists it too
    stages = ["cost" if each.settled else each.stage for each in known]  # a measured latency is no guess
    told = [{"stage": stage} if "probe" in stages else {} for stage in stages]
    return [
        {"name": each.name, "direction": str(each.direction), **stage} for each, stage in zip(known, told, strict=True)
    ]


def check_device(config: SearchConfig) -> None:
    """Raise UsageError if units run on this machine, and it does not have their device. Workers of Ray may have it."""
    if config.runner.name == "inline":
        device_here(config.device)


def check_trains(config: SearchConfig, *, here: bool = True) -> None:
    """Raise NasError if a search could not train: its device or the place of its checkpoints is missing, or its
    scheduler gives a forecast that breaks the contract. here: the runner is the one that the search file names.

    `nas plan` calls it too, so both commands reject the same files.
    """
    if here:
        check_device(config)
    check_checkpoints(config.checkpoints, check_storage(config.storage))
    forecast(config)


def _usable(config: SearchConfig, study: SearchConfig, *, here: bool) -> tuple[SearchConfig, str]:
    """`config` for a search that only shows the result of `study`, and "". If it could not train as it is, it has the
    places of the study, which stay stored: (such a config, why). here: as in `check_trains`.
    """
    places = {name: getattr(study, name) for name in PLACES}
    if all(getattr(config, name) == place for name, place in places.items()):
        return config, ""
    try:
        check_trains(config, here=here)
    except NasError as error:
        return config.model_copy(update=places), str(error)
    return config, ""


def check_runner(runner: object) -> None:
    """Raise UsageError if `runner` cannot run units; None is the runner that the search file names."""
    missing = [name for name in ("submit", "wait", "close") if not callable(getattr(runner, name, None))]
    if runner is not None and missing:
        raise UsageError(
            f"runner must be an object that runs units (`nas.runners.contract.Runner`), but got {_short(runner)}. The "
            "search file chooses a runner by name, as in `runner: inline`."
        )


def check_finals(config: SearchConfig, *, known: bool) -> None:
    """Raise UsageError if the first objective cannot decide the finals; a file says so when it is read.

    known: the study exists.
    """
    try:
        checks.check_finals(config, factory.objectives(config), known=known)
    except ValueError as error:
        raise UsageError(f"objectives: {error}.") from None


def _with_facts(config: SearchConfig, known: dict[str, Any] | None = None) -> SearchConfig:
    """`config` with the facts about its data: those that the study knows, or those that the task tells."""
    facts = known or factory.prepared_task(config).data_facts() or None
    return config.model_copy(update={"data_facts": facts})


def check_continues(store: Reader, study: Study, config: SearchConfig) -> bool:
    """Whether the space of `config` is larger than that of `study`; writes nothing.

    `nas plan` calls it too, so both commands reject the same files. Raises UsageError if new trials could not be
    compared with those of the study, SpaceError if the space has lost points.
    """
    _check_same(study, config)
    return _has_grown(store, study, config)


def _kept(config: SearchConfig) -> dict[str, Any]:
    """What the study stores of a search file: everything but the URL of the database, which may hold a password."""
    return config.model_dump(mode="json", exclude={"storage"})


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
