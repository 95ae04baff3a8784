"""Whether a search was better than its control arms."""

import random
from dataclasses import replace

import pytest

from nas import report
from nas.architectures import find
from nas.config import searchfile
from nas.errors import UsageError
from nas.report import summary
from nas.report.control import Control
from nas.store import open_store
from nas.work import Failure, FailureKind, Outcome
from searchspace.model.architecture import Architecture

HALVING = "{halving: {rungs: [2, 6, 18]}}"


@pytest.fixture
def arms(describe):
    """`arms({"random": 0.5}, trials=...)`: a search with these controls, in one study of its own."""

    def made(control, **changes):
        text = describe(**changes)
        written = {f"control-{name}": {"strategy": name, "share": share} for name, share in control.items()}
        return type(text)(**{**text.model_dump(), "arms": written})

    return made


def test_random_search_is_not_called_better_than_random_search(arms, search, tmp_path):
    """The whole way from the search file to the sentence; the rate of false claims is tested in test_fronts."""
    config = arms({"random": 0.4}, strategy="random", budget="{trials: 20}", scheduler=HALVING)
    with search(config) as result:
        (found,) = report.controls(result.store, result.study)
        text = summary.to_text(result.store, result.study, None, str)
    assert found.verdict == "not better"
    assert 5 <= found.trials[1] <= 8 and abs(found.cost[0] / found.cost[1] - 1) < 0.3
    assert "The search was not better than random search: at equal cost" in text
    assert found.start == 0, "random search is no start of another strategy"


def test_a_study_keeps_the_comparison_until_there_are_further_results(arms, search, monkeypatch):
    def computed(*_):
        raise AssertionError("the kept comparison is used")

    config = arms({"random": 0.4}, strategy="random", budget="{trials: 20}", scheduler=HALVING)
    with search(config) as result:
        kept, study = report.controls(result.store, result.study), result.study
        older = replace(study, ending={**study.ending, "controls": None})
        grown = replace(study, objectives=[*study.objectives, {"name": "state_bytes", "direction": "minimize"}])
        assert report.controls(result.store, older) == kept
        assert report.header(result.store, study).to_dict()["ending"].keys() == {"limit", "not_started", "not_promoted"}
        monkeypatch.setattr("nas.statistics.front_comparison.compare", computed)
        assert report.controls(result.store, study) == kept
        with pytest.raises(AssertionError):
            report.controls(result.store, older)
        assert report.controls(result.store, grown) == [], "no trial has the new objective"


def test_a_search_that_is_judged_by_its_random_start_says_so(arms, search, tmp_path):
    """A small share of the control: at equal cost only the first trials of the search count."""
    config = arms({"random": 0.2}, strategy="{aging_evolution: {start: 4}}", budget="{trials: 20}")
    with search(config) as result:
        (found,) = report.controls(result.store, result.study)
    assert found.start == found.to_dict()["start"] == 4 < found.trials[0] < 16
    said = f"Of the search's trials that count, 4 of {found.trials[0]} are the random start of its strategy."
    assert found.sentence().endswith(f"). {said}")


def test_costs_that_differ_are_not_called_equal():
    shares = (0.9, 0.8)
    found = Control("control-random", "random search", shares, -0.1, 0.1, (1, 2), (67.5e6, 32.7e6), "FLOPs")
    assert "at unequal cost (67.5M and 32.7M FLOPs" in found.sentence()


def test_an_interval_that_does_not_hold_the_difference_is_explained():
    """Of 20 trials and 1, the larger set has the better front by chance alone."""
    found = Control(
        "control-hand", "the architectures made by hand", (1.0, 0.001), 0.0, 0.638, (20, 1), (1, 1), "FLOPs"
    )
    assert found.sentence().endswith("The interval leaves out the part of the difference that more trials alone give.")


def test_a_better_search_is_called_better(arms, search, tmp_path):
    def unit(work, progress=None):
        """The trials of the control, one in two, lose."""
        luck = random.Random(work.trial).random()
        return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, metrics={"loss": luck + work.trial % 2})

    config = arms({"random": 0.5}, strategy="random", objectives="[loss]", budget="{trials: 30}")
    with search(config, unit) as result:
        (found,) = report.controls(result.store, result.study)
        seen = report.status(result.store, result.study)
    assert found.verdict == "better" and found.low > 0
    assert seen.to_dict()["controls"][0]["verdict"] == "better"
    assert "control   The search was better than random search" in seen.to_text()


def test_architectures_made_by_hand_are_an_arm(describe, search, tmp_path):
    from nas.engine.replay import replay

    (tmp_path / "mine.yaml").write_text("{kind: decoder, width: 24, vocabulary: 256, body: [attention, feed_forward]}")
    head = describe().model_dump(include={"storage", "checkpoints", "study"})
    text = f"""
study: {head["study"]}
space: {{kind: decoder, width: !choice [16, 24, 32, 40], body: {{repeat: {{times: !int [1, 9], of: [attention]}}}}}}
task: language_model
objectives: [loss, parameters]
scheduler: {{full: {{steps: 10}}}}
strategy: random
runner: {{inline: {{process: false}}}}
budget: {{trials: 12}}
control: {{random: 0.25, hand: [mine.yaml, "transformer_decoder:tiny"]}}
storage: {head["storage"]}
checkpoints: null
"""
    config = searchfile.parse(text, folder=tmp_path)
    assert config.arms["control-hand"].share == pytest.approx(2 / 12)
    with search(config) as result:
        own = [each for each in result.store.trials(result.study.id) if each.arm == "control-hand"]
        found = {each.arm: each for each in report.controls(result.store, result.study)}
        assert replay(result.store, result.study).same
    assert [each.operator for each in own] == ["baseline", "baseline"]
    assert "than the architectures made by hand" in found["control-hand"].sentence()
    larger = searchfile.parse(text.replace("trials: 12", "trials: 16"), folder=tmp_path)
    with search(larger) as result:  # the list keeps its trials although its share is smaller now
        assert result.store.arms(result.study.id, "search") == {"control-hand": 2, "control-random": 4, "main": 10}


def test_a_value_that_a_machine_finds_later_counts_as_soon_as_it_is_known(arms, search, table):
    """Every third trial still waits for the machine; one does not run there, so it counts as a failure."""
    on = "{latency: {length: 4, threads: 1, on: {machine: laptop}, name: laptop_ms}}"
    config = arms({"random": 0.5}, strategy="random", objectives=f"[loss, {on}]")

    def unit(work, progress=None):
        with open_store(config.storage) as store:
            known = store.trials(store.study("tried").id, light=True)[: work.trial]
            if known and work.trial % 3:
                store.add_value(known[-1].id, {"name": "laptop_ms", "direction": "minimize"}, 1.0 + work.trial, rung=2)
            elif work.trial == 3:
                store.add_no_value(known[-1].id, 2, ("no value", "it does not run"))
        return table(work)

    with search(config, unit) as result:
        (found,) = report.controls(result.store, result.study)
        known = [each for each in result.store.trials(result.study.id) if "laptop_ms" in each.values]
    assert len(known) == 8 and sum(found.trials) <= 9


def test_a_demoted_probe_does_not_count(arms, search, table):
    def unit(work, progress=None):
        if work.kind == "probe":
            score = {"snip": random.Random(work.trial).random()}
            return Outcome(trial=work.trial, rung=0, kind="probe", seconds=0.1, metrics=score)
        return table(work)

    config = arms({"random": 0.5}, strategy="random", objectives="[loss, snip]", budget="{trials: 42}")
    with search(config, unit) as result:
        (found,) = report.controls(result.store, result.study)
    assert found.without == ("snip",)
    assert found.sentence().endswith(" Demoted probes do not count: snip.")
    assert max(found.shares) == 1, "of the loss alone, the better arm has the whole hypervolume"


def test_a_control_without_a_comparison_is_named(describe, search, tmp_path, table):
    (tmp_path / "mine.yaml").write_text("{kind: decoder, width: 24, vocabulary: 256, body: [attention, feed_forward]}")
    hand = {"architectures": [Architecture.load(tmp_path / "mine.yaml").text()], "share": 0.2}
    other = {**hand, "architectures": [find("transformer_decoder:tiny").text()]}
    written = {**describe().model_dump(), "arms": {"control-a": hand, "control-b": other}}
    config = type(describe())(**written)

    def unit(work, progress=None):
        if work.architecture == hand["architectures"][0]:
            return Outcome(
                trial=work.trial, rung=0, seconds=1.0, failure=Failure(FailureKind.NOT_FINITE, "it diverged")
            )
        return table(work)

    with search(config, unit) as result:
        told = summary.to_text(result.store, result.study, None, str)
        seen = report.status(result.store, result.study).to_text()
        (found,) = report.controls(result.store, result.study)
    assert found.name == "the architectures made by hand (control-b)", "two arms are not called alike"
    without = "There is no comparison with the architectures made by hand (control-a): this arm or the search has no"
    assert without in told and f"control   {without}" in seen


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ("[]", "control: the list has no architectures"),
        ("{mine: []}", "control: mine has no architectures"),
        ("[mine.yaml, 'transformer_decoder:tiny', mine.yaml]", r"control\[2\]: is the same architecture as number 1"),
    ],
)
def test_a_list_without_architectures_or_with_one_twice_is_refused(control, message, tmp_path):
    (tmp_path / "mine.yaml").write_text("{kind: decoder, width: 24, vocabulary: 256, body: [attention, feed_forward]}")
    text = (
        "study: refused\nspace: {kind: decoder, width: !choice [16, 24], body: [attention]}\ntask: language_model\n"
        "objectives: [loss]\nscheduler: {full: {steps: 10}}\nbudget: {trials: 12}\nfinals: {top: 0}\n"
    )
    with pytest.raises(UsageError, match=message):
        searchfile.parse(f"{text}control: {control}\n", folder=tmp_path)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.01, 0.2, "better"), (-0.1, 0.1, "not better"), (-0.3, -0.1, "worse")]
)
def test_the_interval_decides(low, high, verdict):
    found = Control("control-random", "random search", (0.9, 0.8), low, high, (5, 1), (1e6, 1e6), "FLOPs")
    assert found.verdict == verdict
    assert found.sentence().startswith(f"The search was {verdict} than random search: at equal cost (1M and 1M FLOPs")
