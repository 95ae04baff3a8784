"""A study that has ended gets a further objective: its values, its front, and its checksums hold."""

import contextlib
import json
from dataclasses import replace

import pytest

from nas.cli.app import run
from nas.engine import rescoring
from nas.errors import UsageError
from nas.objectives.costs import Flops
from nas.report import front, trials
from nas.store import open_store
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost


@pytest.fixture
def ended(describe, search):
    result = search(describe(budget="{trials: 6}"))
    with result.store:
        yield result


def test_every_trial_gets_the_value_and_the_front_counts_it(ended):
    store, study = ended.store, ended.study
    before = {trial.number for trial in front(store, study)}
    objective = rescoring.wanted(study, "flops")
    found = list(rescoring.rescore(store, study, objective))

    study = store.study(study.name)
    assert [each["name"] for each in study.objectives] == ["loss", "parameters", "flops"]
    every = trials.results(store, study)
    assert {each.trial: each.value for each in found} == {each.number: each.values["flops"] for each in every}
    first = store.trial(study.id, 0)
    assert first.values["flops"] == cost(Architecture.parse(first.architecture), objective.shape).flops
    assert before <= {trial.number for trial in front(store, study)}
    assert store.faults() == []


def test_goes_on_where_it_stopped(ended):
    store, study = ended.store, ended.study
    objective = rescoring.wanted(study, "flops")
    some = rescoring.rescore(store, study, objective)
    first = [next(some), next(some)]
    some.close()
    again = list(rescoring.rescore(store, store.study(study.name), rescoring.wanted(study, "flops")))
    assert [each.old for each in again] == [True, True, False, False, False, False]
    assert [each.value for each in again][:2] == [each.value for each in first]


def test_the_value_of_a_faster_process_counts(ended, monkeypatch):
    store, study = ended.store, ended.study
    trial = store.trial(study.id, 0)

    def measured(self, architecture, metrics=None):
        store.add_value(trial.id, {"name": "flops", "direction": "minimize"}, 7.0)
        return 8.0

    monkeypatch.setattr(Flops, "evaluate", measured)
    first = next(rescoring.rescore(store, study, rescoring.wanted(study, "flops")))
    assert (
        first == rescoring.Rescored(0, 7.0, old=True, objective="flops")
        and store.trial(study.id, 0).values["flops"] == 7.0
    )


@pytest.mark.usefixtures("measured_once")
def test_values_of_another_objective_with_the_same_name_are_not_taken_for_its_own(ended):
    store = ended.store

    def found(spec):
        return list(rescoring.rescore(store, store.study("tried"), rescoring.wanted(store.study("tried"), spec)))

    latency = {"length": 4, "threads": 1, "method": "measured", "name": "laptop"}
    assert found("flops") and found({"latency": latency})
    with pytest.raises(UsageError, match="objective flops: the study has values of another objective with this name"):
        found({"latency": latency | {"name": "flops"}})
    with pytest.raises(UsageError, match="laptop: the study's latencies are of unit ms, not tokens_per_second"):
        found({"throughput": latency})


def test_an_objective_that_cannot_be_found_here_does_not_stop_the_others(ended, monkeypatch):
    store, study, told = ended.store, ended.study, []
    some = [rescoring.Wanted(rescoring.wanted(study, each)) for each in ("flops", "throughput")]

    def refuse(search):
        raise UsageError("no such device here")

    monkeypatch.setattr(some[1].objective, "begin", refuse)
    found = list(rescoring.find(store, study, some, told.append))
    assert {each.objective for each in found} == {"flops"} and told == ["Left out: no such device here"]
    with pytest.raises(UsageError, match="no such device here"):
        list(rescoring.find(store, study, some[1:]))


def test_flops_that_come_later_count_the_depth_that_halting_blocks_reached(describe, search, table):
    space = "{kind: decoder, width: 16, vocabulary: 256, body: {halting: {times: 4, of: [{feed_forward: {}}]}}}"

    def unit(work, progress=None):
        found = table(work)
        return replace(found, metrics=found.metrics | {"halting_steps": 1.5})

    with search(describe(space=space, budget="{trials: 1}"), unit).store as store:
        study = store.study("tried")
        objective = rescoring.wanted(study, "flops")
        (found,) = rescoring.rescore(store, study, objective)
        architecture = Architecture.parse(store.trial(study.id, 0).architecture)
        assert found.value == cost(architecture, replace(objective.shape, halting_steps=1.5)).expected_flops
        assert found.value < objective.evaluate(architecture)


def test_a_trial_without_a_value_says_why_and_is_not_on_the_front(ended, monkeypatch):
    store, study = ended.store, ended.study
    known = Flops.evaluate

    def fails(self, architecture, metrics=None):
        if architecture.hash == store.trial(study.id, 0).architecture_hash:
            raise rescoring.NoValue("it does not run")
        return known(self, architecture, metrics)

    monkeypatch.setattr(Flops, "evaluate", fails)
    found = list(rescoring.rescore(store, study, rescoring.wanted(study, "flops")))
    assert (found[0].value, found[0].reason) == (None, "it does not run")
    assert 0 not in {trial.number for trial in front(store, store.study(study.name))}


def test_the_search_goes_on_afterwards(ended, describe, search):
    list(rescoring.rescore(ended.store, ended.study, rescoring.wanted(ended.study, "flops")))
    with search(describe(budget="{trials: 8}")).store as store:
        study = store.study(ended.study.name)
        assert len(trials.results(store, study)) == 8
        found = list(rescoring.rescore(store, study, rescoring.wanted(study, "flops")))
    assert [each.old for each in found] == [True] * 6 + [False] * 2


def test_follows_a_search_until_it_ends(ended, describe, search, monkeypatch):
    """While it waits, the search goes on: two more trials."""
    store, study = ended.store, ended.study
    store.update_study(study.id, ending=None)
    waits = iter([lambda: search(describe(budget="{trials: 8}")).close()])
    monkeypatch.setattr(rescoring.time, "sleep", lambda seconds: next(waits)())
    found = list(rescoring.find(store, study, [rescoring.Wanted(rescoring.wanted(study, "flops"))], follow=True))
    assert sorted(each.trial for each in found) == list(range(8))
    assert not any(each.old for each in found)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("parameters", "the search has one of this name"),
        ("bits_per_byte", "needs a training or a probe"),
        ({"latency": {"on": {"machine": "laptop"}}}, "it is found where this command runs, so leave out `on`"),
        ({"latency": {"on": {"resources": {"quiet": 1}}}}, "it is found where this command runs, so leave out `on`"),
        ({"latency": {"name": "trial"}}, "'trial' is another column of the tables"),
        ({"latency": {"name": "a/b"}}, "a name is a letter and up to 63 letters, .* but got 'a/b'"),
        ({"latency": {"new_tokens": 3}}, "new_tokens has an effect in the phase generate only"),
        ({"latency": {"threads": 100_000}}, "option 'threads': must be less than or equal to 1024, but got 100000"),
        (
            {"latency": {"phase": "decod"}},
            "option 'phase': must be 'prefill', .* but got 'decod'. Did you mean 'decode'",
        ),
    ],
)
def test_refuses_what_cannot_come_later(ended, spec, message):
    with pytest.raises(UsageError, match=message):
        rescoring.wanted(ended.study, spec)


@pytest.mark.usefixtures("measured_once")
def test_the_command_measures_a_finished_study_in_another_phase(describe, search, capsys):
    with search(describe(budget="{trials: 2}")) as result:
        place = result.config.storage
    spec = "{latency: {phase: decode, length: 4, threads: 1, method: measured, name: laptop_ms}}"
    with contextlib.suppress(SystemExit):
        run(["rescore", "tried", "--objective", spec, "--storage", place, "--json"])
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert "trial 0: " in shown.err  # said as soon as it is found
    with open_store(place) as store:
        trial = store.trial(store.study("tried").id, 0)
    assert trial.values["laptop_ms"] == rows[0]["laptop_ms"] == trial.evidence["laptop_ms"]["milliseconds"] > 0
    with contextlib.suppress(SystemExit):
        run(["rescore", "tried", "--objective", spec.replace("length: 4", "length: 5"), "--storage", place])
    assert "the study's latencies are of length 4, not 5" in capsys.readouterr().err
