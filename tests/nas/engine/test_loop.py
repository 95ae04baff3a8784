"""The loop of a search: the same trials again, nothing lost and nothing twice, whatever happens on the way."""

import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from nas.engine import launch, leases
from nas.engine.forecast import forecast
from nas.engine.loop import NothingFound, Search
from nas.engine.resolve import resolve
from nas.errors import NasError, UsageError
from nas.report.console import Reporter
from nas.runners.inline import InlineRunner
from nas.store import TrialState, UnitState, open_store
from nas.work import Failure, FailureKind, Outcome
from searchspace.errors import SpaceError

FULL = "{full: {steps: 10}}"
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
KINDS = [
    ("random", FULL),
    ("random", HALVING),
    ("{aging_evolution: {start: 4, sample: 3}}", FULL),
    ("{aging_evolution: {start: 4, sample: 3}}", HALVING),
    ("{nsga2: {start: 4, population: 6}}", HALVING),
    ("{optuna: {sampler: TPESampler, n_startup_trials: 4}}", HALVING),
    ("{optuna: NSGAIISampler}", FULL),
]
TINY = "{kind: decoder, width: !choice [16, 24], vocabulary: 256, body: !choice [attention, feed_forward, []]}"


class Breakdown(NasError):
    """The driver goes down in the middle of a unit."""


def breaking(unit, at):
    """`unit`, but its call number `at` ends the search."""
    calls = 0

    def run(work, progress=None):
        nonlocal calls
        calls += 1
        if calls == at:
            raise Breakdown("gone")
        return unit(work, progress)

    return run


@pytest.mark.parametrize(("strategy", "scheduler"), KINDS)
def test_a_seed_gives_the_same_trials_in_the_same_order_even_when_the_search_breaks_down(
    strategy, scheduler, describe, search, table, record, tmp_path
):
    config = describe(strategy=strategy, scheduler=scheduler)
    whole = record(search(config))
    (tmp_path / "broken").mkdir()
    config = describe(tmp_path / "broken", strategy=strategy, scheduler=scheduler)
    for at in (1, 4, 5):
        with pytest.raises(Breakdown):
            search(config, breaking(table, at))
    assert record(search(config)) == whole
    assert len({(number, rung) for number, rung, *_ in whole}) == len(whole)
    assert len({hash for _, rung, hash, *_ in whole if rung == 0}) == 12


KILLED = """
import os, runpy, signal, sys
from nas.engine import launch
from nas.config.schema import SearchConfig
from nas.runners.inline import InlineRunner
looked_up = runpy.run_path(sys.argv[1])["looked_up"]
calls = 0
def run(work, progress=None):
    global calls
    calls += 1
    if calls == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return looked_up(work)
launch.search(SearchConfig.model_validate_json(sys.argv[2]), quiet=True, runner=InlineRunner(run))
"""


def test_a_killed_search_is_taken_up_at_once_by_the_next_one(describe, search, record, tmp_path, forked):
    whole = record(search(describe(scheduler=HALVING)))
    (tmp_path / "killed").mkdir()
    config = describe(tmp_path / "killed", scheduler=HALVING)
    tables = str(Path(__file__).parents[1] / "conftest.py")
    assert forked(KILLED, tables, config.model_dump_json()).returncode == -signal.SIGKILL
    assert record(search(config)) == whole


@pytest.mark.parametrize("scheduler", [FULL, HALVING])
def test_two_searches_on_one_study_share_the_work(scheduler, describe, search, table, record):
    config = describe(scheduler=scheduler, budget="{trials: 30}")
    together, worked, failed = threading.Barrier(2), Counter(), []

    def one(name):
        def run(work, progress=None):
            if not worked[name]:
                together.wait(30)  # so that both take part
            worked[name] += 1
            return table(work)

        try:
            search(config, run).store.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and worked["one"] and worked["other"]
    rows = record(search(config))
    assert sorted({row[0] for row in rows}) == list(range(30))
    assert len({row[:2] for row in rows}) == len(rows) == worked.total()
    assert len({row[2] for row in rows if row[1] == 0}) == 30


def test_a_larger_budget_goes_on_where_a_whole_search_would_be(describe, search, record, tmp_path):
    strategy = "{aging_evolution: {start: 4, sample: 3}}"
    search(describe(strategy=strategy, budget="{trials: 7}")).store.close()
    longer = record(search(describe(strategy=strategy, budget="{trials: 12}")))
    (tmp_path / "whole").mkdir()
    assert longer == record(search(describe(tmp_path / "whole", strategy=strategy)))


def test_a_larger_space_grows_the_study_and_a_smaller_one_is_refused(describe, search):
    small = "{kind: decoder, width: !choice [16, 24, 32], vocabulary: 256, body: !choice [attention, feed_forward]}"
    large = small.replace("[16, 24, 32]", "[16, 24, 32, 40, 48]")
    first = search(describe(space=small, budget="{trials: 4}"))
    assert len(first.store.space_versions(first.study.id)) == 1
    first.store.close()
    second = search(describe(space=large, budget="{trials: 10}"))
    assert len(second.store.space_versions(second.study.id)) == 2
    assert [trial.space_version for trial in second.store.trials(second.study.id)] == [0] * 4 + [1] * 6
    second.store.close()
    with pytest.raises(SpaceError, match=r"may grow but not shrink; gone: .*48"):
        search(describe(space=large.replace(", 48", ""), budget="{trials: 12}"))


@pytest.mark.parametrize(
    ("part", "written"),
    [
        ("strategy", "nsga2"),
        ("scheduler", "{full: {steps: 11}}"),
        ("seed", "1"),
        ("objectives", "[loss]"),
        ("objectives", "[parameters, loss]"),
    ],
)
def test_what_would_make_trials_incomparable_is_refused(part, written, describe, search):
    search(describe(budget="{trials: 2}")).store.close()
    with pytest.raises(UsageError, match=f"started with other settings.*{part} was .*, is .*new name"):
        search(describe(**{part: written}))


OWN = """
from nas.tasks import Task
class Mine(Task):
    def __init__(self, file: str): self.file = file
    @classmethod
    def resolve(cls, options, folder): return {{"file": str((folder / options["file"]).absolute())}}
    @property
    def data_hash(self): return open(self.file).read()
    def draw(self, split, seed, index): return {number}
    def loss(self, model, batch, context): return None
"""


def own_search(folder: Path, describe):
    from nas.config import searchfile

    folder.mkdir(exist_ok=True)
    config = describe()
    text = f"""
study: tried
space: {TINY}
task: {{mine.py: {{file: data.txt}}}}
objectives: [loss]
strategy: random
scheduler: {FULL}
budget: {{trials: 2}}
storage: {config.storage}
"""
    return searchfile.parse(text, folder=folder)


def test_changed_data_and_a_changed_task_file_are_refused_but_not_another_folder(describe, search, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.txt").write_text("some data")
        (tmp_path / name / "mine.py").write_text(OWN.format(number=1))
    search(own_search(tmp_path / "here", describe)).store.close()
    search(own_search(tmp_path / "there", describe)).store.close()
    (tmp_path / "there" / "data.txt").write_text("other data")
    with pytest.raises(UsageError, match="data of study 'tried' have changed"):
        search(own_search(tmp_path / "there", describe))
    (tmp_path / "here" / "mine.py").write_text(OWN.format(number=2))
    with pytest.raises(UsageError, match=r"text of the task file .*mine.py has changed"):
        search(own_search(tmp_path / "here", describe))


def failing(table, kind, when):
    def run(work, progress=None):
        outcome = table(work)
        if not when(work):
            return outcome
        return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, failure=Failure(kind, f"because of {work.trial}"))

    return run


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if not kind.retried])
def test_a_failure_is_kept_with_its_message_and_never_tried_again(kind, describe, search, table):
    tried = Counter()

    def odd(work):
        tried[work.architecture] += 1
        return work.trial % 2 == 1

    result = search(describe(), failing(table, kind, odd))
    trials = result.store.trials(result.study.id)
    result.store.close()
    assert set(tried.values()) == {1}
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.FAILED] * 6
    assert trials[3].error_kind == kind and trials[3].error_text == "because of 3"


def test_a_lost_worker_is_replaced_up_to_the_limit(describe, search, table):
    tried = Counter()

    def lost(work):
        tried[work.trial] += 1
        return work.trial == 5 or (work.trial == 2 and tried[2] < 3)

    result = search(describe(), failing(table, FailureKind.WORKER_LOST, lost))
    trials = result.store.trials(result.study.id)
    result.store.close()
    assert tried[2] == tried[5] == 3 and tried.total() == 12 + 4
    assert [trial.number for trial in trials if trial.state is TrialState.FAILED] == [5]
    assert trials[5].error_kind == "worker lost"


def test_failures_of_the_infrastructure_do_not_count_as_attempts(describe, search, table):
    tried = Counter()

    def lost(work):
        tried[work.trial] += 1
        return work.trial == 2 and tried[2] < 10

    result = search(describe(budget="{trials: 4}"), failing(table, FailureKind.INFRASTRUCTURE, lost))
    trials = result.store.trials(result.study.id)
    (unit,) = result.store.units(result.study.id, 2)
    result.store.close()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert tried[2] == unit.attempt == 10 and unit.released == 9


@pytest.mark.parametrize("ended", [2, 3, 7])
def test_a_unit_that_ends_each_process_that_runs_it_fails_as_crashed(ended, describe, search, table):
    config = describe(budget="{trials: 4}")  # with three attempts
    with pytest.raises(Breakdown):
        search(config, breaking(table, 2))
    with launch.open_for(config) as store:
        study = store.study("tried")
        for number in range(ended):  # processes that took the unit and ended: their leases ran out
            assert [each.number for each in store.lease(study.id, f"gone {number}", 1, 0.0)] == [1]
            time.sleep(0.01)
    tried = Counter()

    def counted(work, progress=None):
        tried[work.trial] += 1
        return table(work)

    result = search(config, counted)
    trials = result.store.trials(result.study.id)
    units = result.store.units(result.study.id, 1)
    result.store.close()
    states = [trial.state for trial in trials]
    if ended < 3:
        assert states == [TrialState.COMPLETE] * 4 and tried[1] == 1
        return
    assert states == [TrialState.COMPLETE, TrialState.FAILED, TrialState.COMPLETE, TrialState.COMPLETE]
    assert tried[1] == 0 and trials[1].error_kind == units[0].error_kind == "crashed"
    assert "started 3 times" in trials[1].error_text and "limits.attempts" in trials[1].error_text


def test_a_search_that_is_killed_is_not_the_fault_of_units_in_processes_of_their_own(
    describe, search, table, monkeypatch
):
    monkeypatch.setattr(InlineRunner, "isolates", True)
    config = describe(budget="{trials: 4}")  # with three attempts
    with pytest.raises(Breakdown):
        search(config, breaking(table, 2))
    with launch.open_for(config) as store:
        study = store.study("tried")
        for number in range(20):
            assert [each.number for each in store.lease(study.id, f"gone {number}", 1, 0.0)] == [1]
            time.sleep(0.001)
    result = search(config, table)
    states = [trial.state for trial in result.store.trials(result.study.id)]
    result.store.close()
    assert states == [TrialState.COMPLETE] * 4


def test_an_exception_in_a_unit_is_a_failure_with_its_traceback(describe, search, table):
    def run(work, progress=None):
        if work.trial == 0:
            raise ZeroDivisionError("in the task")
        if work.trial == 1:
            sys.exit("the task leaves")
        if work.trial == 2:
            raise MemoryError
        return table(work)

    result = search(describe(), run)
    first, second, third = result.store.trials(result.study.id, limit=3)
    result.store.close()
    assert first.error_kind == second.error_kind == "task error"
    assert "ZeroDivisionError: in the task" in first.error_text and "test_loop.py" in first.error_text
    assert third.error_kind == "out of memory"


def test_a_search_in_which_everything_fails_ends_and_says_why(describe, search, table):
    unit = failing(table, FailureKind.BUILD_ERROR, lambda work: True)
    with pytest.raises(NothingFound, match=r"every trial failed .12 build error.*because of 0") as caught:
        search(describe(finals="{top: 2}"), unit)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(("strategy", "scheduler"), KINDS)
def test_a_small_space_is_searched_through_and_then_the_search_ends(
    strategy, scheduler, describe, search, record, capsys
):
    result = search(describe(space=TINY, strategy=strategy, scheduler=scheduler, budget="{trials: 1000}"))
    assert len({row[2] for row in record(result)}) == 6


def test_the_budget_of_minutes_holds_across_restarts_and_leaves_the_finals(describe, search, table, record):
    def minute(work, progress=None):
        outcome = table(work)
        return Outcome(trial=work.trial, rung=work.rung, seconds=60.0, metrics=outcome.metrics)

    finals = "{top: 1, seeds: 2, steps: 20, baselines: [], tune: {}}"
    config = describe(budget="{trials: 100, minutes: 5}", finals=finals)
    with pytest.raises(Breakdown):
        search(config, breaking(minute, 4))
    result = search(config, minute)
    assert result.verdict is not None and len(result.verdict.winner.test[20]) == 2
    purposes = Counter(each.purpose for each in result.store.results_since(result.study.id))
    result.store.close()
    assert purposes == {"search": 5, "final": forecast(config).final_units}


def test_baselines_are_the_first_trials_and_may_be_added_later(describe, search, record):
    def operators(**changes):
        return [row[3] for row in record(search(describe(**changes)))]

    assert operators(baselines="[transformer_decoder:small]", budget="{trials: 3}") == ["baseline", "random", "random"]
    more = operators(baselines="[transformer_decoder:small, transformer_modern:small]", budget="{trials: 5}")
    assert more == ["baseline", "random", "random", "baseline", "random"]


def test_a_search_whose_lease_was_lost_does_not_record_and_goes_on(describe, table, capsys):
    config = describe(budget="{trials: 4}")
    store = launch.open_for(config)
    study = launch.enter(store, resolve(config, store))

    def robbed(work, progress=None):
        if work.trial == 1 and not thief:
            held = next(owner.name for owner in store.owners(study.id))
            thief.extend(store.lease(study.id, "thief", 1, 60, dead_owners=[held]))
            mine = thief[0]
            store.finish(mine.id, "thief", mine.attempt, {"loss": 0.5}, last=True)
        return table(work)

    thief: list = []
    reporter = Reporter(store, study, budget=4, objective="loss")
    Search(config, store, study, InlineRunner(robbed), reporter).run()
    trials = store.trials(study.id)
    store.close()
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert trials[1].values["loss"] == 0.5
    assert "trial 1 rung 0: another process has taken it over" in capsys.readouterr().err


def test_what_breaks_a_search_down_gives_its_units_back(describe, search, table):
    config = describe()
    with pytest.raises(Breakdown):
        search(config, breaking(table, 3))
    with open_store(config.storage) as store:
        study = store.study("tried")
        assert store.open_units(study.id) == {UnitState.QUEUED: 1}
        assert not store.owners(study.id)
        unit = store.lease(study.id, leases.owner_name(), 1)[0]
        assert unit.attempt - unit.released == 1  # the attempt does not count


def test_an_objective_that_the_task_does_not_give_ends_the_search_with_a_word(describe, search):
    with pytest.raises(UsageError, match="the task language_model reports no metric 'accuracy'"):
        search(describe(objectives="[{metric: accuracy, direction: maximize}]"))


def test_a_unit_without_the_metric_of_an_objective_is_given_back_and_the_error_says_what_to_do(describe, search, table):
    """A task without `reports` may be found out only by its first unit."""
    config = describe(objectives="[loss]")
    with pytest.raises(UsageError, match=r"the task gives no such metric.*`nas delete tried.*new name"):
        search(config, lambda work, progress: replace(table(work), metrics={"los": 1.0}))
    with open_store(config.storage) as store:
        assert store.open_units(store.study("tried").id) == {UnitState.QUEUED: 1}
        store.delete_study(store.study("tried").id)
    with search(config) as result:
        assert result.best is not None
