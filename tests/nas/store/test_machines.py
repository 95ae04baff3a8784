"""Machines outside the cluster measure latencies for a search: other processes that share only the database."""

import contextlib
import os
import shlex
import time
import warnings

import pytest

from nas.cli.app import run
from nas.engine import rescoring
from nas.engine.replay import replay
from nas.report import overview, summary, trials
from nas.store import open_store
from nas.store.database.secrets import option

pytestmark = pytest.mark.usefixtures("measured_once")
SPACE = """
  kind: decoder
  width: !choice [8, 16]
  vocabulary: 256
  body: {repeat: {times: !int [1, 3], of: [residual: {of: !choice [gru, convolution, lsh_attention: {heads: 2}]}]}}
"""
# No load is too high, so nothing is measured twice.
MEASURED = "{latency: {length: 4, threads: 1, method: measured, phase: %s, on: {machine: %s}, name: %s_ms}}"
OBJECTIVES = f"[loss, {MEASURED % ('prefill', 'laptop', 'laptop')}, {MEASURED % ('decode', 'board', 'board')}]"


@pytest.fixture
def machine(monkeypatch):
    """`machine(name, url)`: starts `nas latency` in another process: a fork, which saves the imports."""
    monkeypatch.setattr(rescoring, "SECONDS", 0.1)
    started = []

    def start(name, url, *more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
            process = os.fork()
        if process == 0:
            try:
                run(["latency", "tried", "--machine", name, "--storage", url, *more])
            except SystemExit as ended:
                os._exit(ended.code or 0)
            finally:
                os._exit(99)
        started.append(process)
        return process

    yield start
    for process in started:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_two_machines_measure_for_one_search_and_one_comes_late(url, describe, search, table, machine):
    """The laptop measures while the search runs. The board is away until the search has ended."""
    config = describe(
        space=SPACE, objectives=OBJECTIVES, strategy="{nsga2: {population: 2}}", budget="{trials: 5}"
    ).model_copy(update={"storage": url})
    laptop = []

    def unit(work, progress=None):
        if not laptop:
            laptop.append(machine("laptop", url))
        with open_store(url) as store:
            deadline = time.monotonic() + 60
            while work.trial == 3 and time.monotonic() < deadline:  # the laptop has found something
                if "laptop_ms" in store.trial(store.study("tried").id, 0).cheap_values:
                    break
                time.sleep(0.05)
        return table(work)

    result = search(config, unit)
    with result.store as store:
        study = store.study("tried")
        assert study.ending is not None and ended(laptop[0]) == 0
        every = trials.results(store, study)
        assert all(each.values["laptop_ms"] > 0 and "board_ms" not in each.values for each in every)
        assert [each.state for each in every] == ["complete"] * 5
        (waits,) = summary.pending(store, study)
        begins = "board_ms: 5 trials wait for the machine board: nas latency tried --machine board --storage "
        assert waits == begins + shlex.quote(option(store.database.url))
        status = overview.status(store, study)
        assert status.to_dict()["pending"] == [waits] and f"pending   {waits}" in status.to_text().splitlines()
        results = [unit for unit in store.results_since(study.id) if not unit.later]
        told = store.trial(study.id, 4).known_results
        assert told > 4 and len(results) == 5  # it knew values of the laptop when it was proposed
        assert replay(store, study).same
        evidence = store.trial(study.id, 0).evidence["laptop_ms"]
        assert (evidence["phase"], evidence["kind"]) == ("prefill", "measured") and evidence["device"]["key"]

        assert ended(machine("board", url)) == 0
        study = store.study("tried")
        chunked = {each.number for each in store.trials(study.id) if "lsh_attention" in each.architecture}
        assert {each.number for each in trials.results(store, study) if "board_ms" not in each.values} == chunked
        assert [each["name"] for each in study.objectives] == ["loss", "laptop_ms", "board_ms"]
        assert summary.pending(store, study) == []
        assert not chunked & {each.number for each in trials.front(store, study)}
        assert replay(store, study).same
        assert store.faults() == []
        assert store.trained(study.id).steps == 50


def test_a_machine_that_no_objective_names_is_refused(describe, search, capsys):
    config = describe(space=SPACE, objectives=OBJECTIVES, budget="{trials: 1}")
    search(config).close()
    for words, message in (
        (["--machine", "labtop"], "Did you mean 'laptop'? Known: board, laptop."),
        ([], "Give either --machine or --objective."),
    ):
        with pytest.raises(SystemExit) as stopped:
            run(["latency", "tried", "--storage", config.storage, *words])
        assert stopped.value.code == 2 and message in capsys.readouterr().err
