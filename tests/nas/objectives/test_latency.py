"""The objective latency: what it accepts, and a search that keeps how each value was found."""

import contextlib
import itertools
import json
import re
from dataclasses import replace

import pytest

from nas.cli.app import run
from nas.config.parts import parts
from nas.engine import launch, planning
from nas.errors import UsageError
from nas.latency import evidence, resources
from nas.latency.calibration import CrossCheck
from nas.latency.predicted import Predictor
from nas.latency.profile import Recorded
from nas.objectives import make
from nas.objectives.contract import Search
from nas.objectives.latency import Latency
from nas.report import trials as reports
from nas.store import TrialState, open_store
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture

pytestmark = pytest.mark.usefixtures("measured_once")
SPACE = """
  kind: decoder
  width: 16
  vocabulary: 256
  body:
    repeat: {times: !int [3, 5], of: [residual: {of: !choice [attention: {heads: 2}, convolution, gru]}]}
"""
LATENCY = "{latency: {length: 8, threads: 1, check: 3, bound: 0.9}}"
MEASURED = "{latency: {phase: decode, length: 8, threads: 1, method: measured}}"


@pytest.fixture
def tried(describe, search):
    def run(objective, trials=3, **changes):
        objectives = f"[loss, {objective}]"
        return search(describe(space=SPACE, objectives=objectives, budget=f"{{trials: {trials}}}", **changes))

    return run


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"phase": "prefil"},
            "option 'phase': must be 'prefill', 'decode', .* but got 'prefil'. Did you mean 'prefill'",
        ),
        ({"check": 2}, "option 'check': must be greater than or equal to 3, but got 2"),
        ({"batch": 2.5}, "option 'batch': must be a valid integer, but got 2.5"),
        ({"lenght": 8}, "no option 'lenght'. Did you mean 'length'"),
    ],
)
def test_refuses_what_it_cannot_measure(options, message):
    with pytest.raises(UsageError, match=message):
        make({"latency": options}, Shape())


def test_takes_the_length_of_the_task_and_names_the_unit():
    objective = make("latency", Shape(length=24))
    assert (objective.name, objective.setting.length, objective.stage) == ("prefill_ms", 24, "cost")
    assert make({"latency": {"phase": "decode"}}, Shape()).name == "decode_ms"


def test_throughput_is_tokens_over_the_latency():
    objective = make({"throughput": {"phase": "decode", "batch": 4, "length": 8, "threads": 1}}, Shape(length=24))
    assert (objective.name, objective.direction, objective.setting.tokens) == (
        "decode_tokens_per_second",
        "maximize",
        4,
    )
    assert make({"latency": {"phase": "generate", "new_tokens": 3}}, Shape()).setting.tokens == 3
    assert make({"latency": {"phase": "generate"}}, Shape()).method == "measured"
    model = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: gru")
    assert objective.evaluate(model) == pytest.approx(4e3 / objective.latency(model).milliseconds)


def test_memory_is_measured_and_compared_with_what_is_declared():
    model = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: gru")
    options = {"phase": "train", "length": 8, "threads": 1}
    objective = make({"peak_memory": options}, Shape())
    found = objective.evidence(model)
    assert objective.name == "train_peak_bytes" and objective.direction == "minimize"
    assert objective.evaluate(model) == found["peak_bytes"] > 0 < found["declared_bytes"]
    said = evidence.sentence(objective.name, found, "s:0")
    assert f"at most {found['peak_bytes']:,} bytes ({found['declared_bytes']:,} declared)" in said


def test_energy_is_read_where_there_is_a_counter_and_refused_elsewhere(tmp_path, monkeypatch, describe):
    (tmp_path / "intel-rapl:0").mkdir()
    counter = tmp_path / "intel-rapl:0" / "energy_uj"
    monkeypatch.setattr(resources, "RAPL", tmp_path)
    objective = make({"energy": {"phase": "decode", "length": 4, "threads": 1}}, Shape())
    with pytest.raises(UsageError, match="objective decode_joules: the CPU reports no energy: there is no counter"):
        objective.begin(Search())
    config = describe(objectives="[loss, {energy: {phase: decode, threads: 1}}]")
    with pytest.raises(UsageError, match="objective decode_joules: the CPU reports no energy"):
        planning.plan(config)
    counter.write_text("5")
    objective.begin(Search())
    read = itertools.count(0.0, 2.0)
    monkeypatch.setattr(resources, "counter", lambda device: lambda: next(read))
    model = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: gru")
    assert objective.evaluate(model) == 2.0 == objective.evidence(model)["joules"]
    assert "2 joules a call" in evidence.sentence("decode_joules", objective.evidence(model), "s:0")


def test_an_option_of_another_phase_is_refused_in_a_file_and_kept_in_a_study(describe):
    text = "[loss, {latency: {phase: prefill, new_tokens: 5, length: 8}}]"
    message = "new_tokens has an effect in the phase generate only, and this is prefill"
    with pytest.raises(UsageError, match=re.escape(f"objectives[1]: objective prefill_ms: {message}")):
        describe(objectives=text)
    config = describe(objectives="[loss, latency]")
    changed = config.objectives[1].model_copy(update={"options": {"new_tokens": 5}})
    kept = config.model_copy(update={"objectives": (config.objectives[0], changed)})
    assert parts(kept).objectives[1].name == "prefill_ms"


def test_what_is_always_measured_says_so():
    model = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: gru")
    options = {"phase": "generate", "method": "predicted", "length": 4, "new_tokens": 2, "threads": 1}
    found = make({"latency": options}, Shape()).evidence(model)
    assert (found["kind"], found["not_predicted"]) == ("measured", "the phase generate is measured as a whole")


def test_two_latencies_of_one_phase_need_a_name(describe):
    twice = "{latency: {length: 8}}, {latency: {length: 16%s}}"
    with pytest.raises(UsageError, match="there is more than one prefill_ms"):
        describe(objectives=f"[loss, {twice % ''}]")
    named = parts(describe(objectives=f"[loss, {twice % ', name: long_ms'}]")).objectives
    assert [each.name for each in named] == ["loss", "prefill_ms", "long_ms"]


@pytest.mark.parametrize("name", ["latency", "energy"])
def test_a_search_for_a_device_that_is_not_here_creates_no_study(describe, name):
    config = describe(objectives=f"[loss, {{{name}: {{device: 'cuda:99', name: there}}}}]")
    for refuse in (planning.plan, launch.search):
        with pytest.raises(UsageError, match="objective there: device 'cuda:99' is not available"):
            refuse(config)
    with open_store(config.storage) as store:
        assert not store.studies()


def test_a_search_keeps_the_interval_the_word_and_what_served(tried):
    result = tried(LATENCY)
    with result.store as store:
        trials = store.trials(result.study.id)
        told = reports.story(store, result.study, 0)

    for trial in trials:
        found = trial.evidence["prefill_ms"]
        assert trial.values["prefill_ms"] == trial.cheap_values["prefill_ms"] == found["milliseconds"]
        assert 0 < found["low"] <= found["milliseconds"] <= found["high"]
        assert found["kind"] in ("measured", "predicted")
        assert (found["phase"], found["length"], found["threads"]) == ("prefill", 8, 1)
        assert found["cross_check"]["of"] == 3
        assert "layer_norm" in {row["operation"] for row in found["served"]}
        assert all(row["choice"] and row["why"] for row in found["served"])
    assert "ms, " in reports.story_text(told)
    assert (
        "again: nas profile tried:0 --phase prefill --device cpu --length 8 --batch 1 --threads 1"
        in reports.story_text(told)
    )
    assert {"operation", "problem", "choice", "why"} == set(evidence.served(told["evidence"])[0])


def test_a_search_that_goes_on_keeps_its_values_and_measures_none_again(tried, monkeypatch):
    first = tried(MEASURED, trials=2)
    with first.store as store:
        before = {trial.architecture_hash: trial.cheap_values for trial in store.trials(first.study.id)}
    known = Predictor.measured

    def watched(self, architecture):
        assert architecture.hash not in before
        return known(self, architecture)

    monkeypatch.setattr(Predictor, "measured", watched)
    second = tried(MEASURED, trials=3)
    with second.store as store:
        after = {trial.architecture_hash: trial.cheap_values for trial in store.trials(second.study.id)}

    assert len(after) == 3
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ((0.01, -0.01), ""),
        ((0.2, -0.2), "predictions were 33.3% off in the cross-check, and the bound is 5.0%"),
        ((), "too few architectures of the space are sums of pieces"),
    ],
)
def test_measures_where_predictions_are_further_off_than_the_bound(errors, reason, tried, monkeypatch):
    check = CrossCheck((1.0, *(1 + error for error in errors)))
    monkeypatch.setattr(Predictor, "check", lambda self, architectures, count: list(architectures) and check)
    result = tried("{latency: {length: 8, threads: 1, check: 3, bound: 0.05}}", trials=1)
    with result.store as store:
        (trial,) = store.trials(result.study.id)

    found = trial.evidence["prefill_ms"]
    assert (found["kind"], found.get("not_predicted", "")) == ("measured" if reason else "predicted", reason)
    said = evidence.sentence("prefill_ms", found, "tried:0")
    assert (f"measured ({reason}) on " if reason else "predicted on ") in said
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("holes", "text"),
    [
        ("body: !choice [gru, lsh_attention: {heads: 2, chunk: 16}]", "lsh_attention cannot read its input in pieces."),
        (
            "position: !choice [none, learned: {length: 128}], body: [gru]",
            "learned supports at most 128 positions, but would read 129.",
        ),
    ],
)
def test_an_architecture_that_does_not_run_like_that_fails_and_the_search_goes_on(holes, text, describe, search):
    space = f"{{kind: decoder, width: 16, vocabulary: 256, {holes}}}"
    decode = "{latency: {phase: decode, length: 128, threads: 1, method: measured}}"
    result = search(describe(space=space, objectives=f"[loss, {decode}]", budget="{trials: 2}"))
    with result.store as store:
        trials = {trial.state: trial for trial in store.trials(result.study.id)}

    assert set(trials) == {TrialState.FAILED, TrialState.COMPLETE}
    assert trials[TrialState.FAILED].error_kind == "no value"
    assert trials[TrialState.FAILED].error_text == f"objective decode_ms: {text}"


def test_a_study_keeps_to_one_device(tried, monkeypatch):
    tried(MEASURED, trials=1).store.close()
    monkeypatch.setattr("kernels.dispatch.device.Device.key", "another")
    with pytest.raises(UsageError, match="the study's latencies are of"):
        tried(MEASURED, trials=2)


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"phase": "generate"}, {"phase": "generate", "new_tokens": 2}, "new_tokens 32, not 2"),
        ({}, {"depth": 2}, "depth None, not 2"),
        ({"threads": 2}, {"threads": 1}, "threads 2, not 1"),
        ({"threads": 2}, {}, None),
        ({"length": 4}, {"length": 8, "batch": 2}, "length 4, not 8, batch 1, not 2"),
    ],
)
def test_values_of_another_setting_need_a_name_of_their_own(then, now, said):
    shape = Shape(batch=1, length=8)
    objective = Latency(shape, **now)
    kept = {"phase": "prefill", "length": 8, "batch": 1, "new_tokens": 32, "unit": "ms", "code": "0ld", **then}
    kept["device"] = {"key": objective.predictor.table.device.key, "name": "here"}
    search = Search(None, None, print, lambda name: iter([kept]))
    if said is None:
        objective.begin(search)
    else:
        with pytest.raises(UsageError, match=f"latencies are of {said}: give this one a name of its own"):
            objective.begin(search)


@pytest.mark.parametrize(("on", "tells"), [({"resources": {"GPU": 1}}, True), ({"machine": "laptop"}, False)])
def test_values_of_other_code_are_told_if_the_workers_of_the_search_find_more(on, tells):
    told = []
    earlier = {"device": {"key": "f00d", "name": "there"}, "code": "0ld"}
    objective = Latency(Shape(), on=on)
    objective.begin(Search(say=told.append, evidence=lambda name: iter([earlier])))
    assert [each[: each.index(",")] for each in told] == [
        "prefill_ms: earlier values of this study are of other code (then 0ld"
    ] * tells
    assert objective.unlike({"device": {"key": "cafe", "name": "here"}})


def test_profile_says_whether_what_was_recorded_holds(tried, capsys):
    result = tried(MEASURED, trials=1)
    place = result.config.storage
    result.store.close()
    setting = ["--phase", "decode", "--length", "8", "--threads", "1"]
    with contextlib.suppress(SystemExit):
        run(["profile", "tried:0", "--storage", place, *setting, "--json"])
    (row,) = json.loads(capsys.readouterr().out)

    assert row["recorded"]["kind"] == "measured"
    assert row["recorded"]["holds"] == (row["recorded"]["low"] <= row["milliseconds"] <= row["recorded"]["high"])


def test_only_a_record_in_the_same_setting_is_compared():
    model = Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 8\nbody: {halting: {times: 2, of: [gru]}}")
    options = {"phase": "generate", "length": 4, "threads": 1, "depth": 2, "new_tokens": 2}
    objective = make({"latency": options}, Shape())
    found, told = objective.latency(model), objective.evidence(model)
    same = Recorded(evidence={"generate_ms": told}, device=told["device"]["key"])

    assert evidence.sentence("generate_ms", told, "s:0").endswith("--threads 1 --depth 2 --new-tokens 2")
    assert same.of(found, objective.setting) is not None
    assert same.of(found, replace(objective.setting, new_tokens=3)) is None
    assert same.of(found, replace(objective.setting, depth=1)) is None
