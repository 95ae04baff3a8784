"""Arms: each has its own strategy, which learns from its own trials alone; shares hold; and all of it replays."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import launch, session
from nas.engine.arm import next_arm
from nas.engine.replay import replay
from nas.engine.scores import Scores
from nas.errors import AnswerProblem, UsageError
from nas.schedulers.contract import Promotion
from nas.schedulers.full import Full
from nas.schedulers.registry import registry as schedulers
from nas.store import TrialState
from nas.strategies.random import Random
from nas.strategies.registry import registry as strategies

NSGA2 = "{nsga2: {start: 4, population: 6}}"
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


def with_arms(config: SearchConfig, **arms: tuple[str, float]) -> SearchConfig:
    written = {name: {"strategy": strategy, "share": share} for name, (strategy, share) in arms.items()}
    return SearchConfig(**{**config.model_dump(), "arms": written})


class Unlimited:
    spent = None


class Named:
    """An arm with nothing but a share and a count."""

    allowance = Unlimited()
    waiting = False

    def __init__(self, name, share):
        self.name, self.share, self.trials, self.exhausted = name, share, 0, None


@pytest.mark.parametrize("budget", [1, 7, 40])
@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.5, 0.3, 0.2), (0.25, 0.25, 0.25, 0.25)])
def test_every_arm_stays_within_a_trial_of_its_share(shares, budget):
    arms = [Named(str(index), share) for index, share in enumerate(shares)]
    while (found := next_arm(arms, budget, 3)) is not None:
        arm, count = found
        assert 1 <= count <= 3
        arm.trials += count
        total = sum(each.trials for each in arms)
        assert all(abs(each.trials - each.share * total) < 1.5 for each in arms)
    assert sum(each.trials for each in arms) == budget


def test_an_arm_that_has_nothing_left_does_not_hold_the_others_up():
    arms = [Named("main", 0.5), Named("control", 0.5)]
    arms[0].exhausted = "searched through"
    arms[1].trials = 3
    assert next_arm(arms, 10) == (arms[1], 1)
    arms[1].trials = 5
    assert next_arm(arms, 10) is None


def test_a_search_with_two_arms_gives_each_its_share_and_its_own_results(describe, table, disorderly):
    config = with_arms(describe(strategy=NSGA2, scheduler=HALVING, budget="{trials: 30}"), control=("random", 0.2))
    result = launch.search(config, quiet=True, runner=disorderly(table))
    with result.store as store:
        trials = store.trials(result.study.id)
        ended = store.results_since(result.study.id)
        report = replay(store, result.study)
    assert Counter(trial.arm for trial in trials) == {"main": 24, "control": 6}
    assert {trial.arm for trial in trials[:5]} == {"main", "control"}
    assert {trial.operator for trial in trials if trial.arm == "control"} == {"random"}
    own = Counter(unit.arm for unit in ended)
    for trial in trials:
        assert trial.known_results <= own[trial.arm] and trial.known_trials <= trial.number
        parents = {trials[number].arm for number in trial.parents}
        assert parents <= {trial.arm}
    promoted = Counter(unit.arm for unit in ended if unit.rung == 1)
    assert promoted["main"] >= 12 and promoted["control"] >= 3  # at least the best half within each arm
    assert report.same, report.as_text()


KILLED = """
import os, runpy, signal, sys
from nas.config.schema import SearchConfig
from nas.engine import launch
from nas.runners.inline import InlineRunner
looked_up = runpy.run_path(sys.argv[1])["looked_up"]
calls = 0
def run(work, progress=None):
    global calls
    calls += 1
    if calls == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return looked_up(work)
launch.search(SearchConfig.model_validate_json(sys.argv[2]), quiet=True, runner=InlineRunner(run))
"""


def test_a_killed_search_with_arms_resumes_as_if_nothing_had_happened(describe, search, record, tmp_path, forked):
    def two_arms(folder):
        folder.mkdir()
        return with_arms(describe(folder, strategy=NSGA2, budget="{trials: 20}"), control=("random", 0.3))

    whole = record(search(two_arms(tmp_path / "whole")))
    config = two_arms(tmp_path / "killed")
    tables = str(Path(__file__).parents[1] / "conftest.py")
    assert forked(KILLED, tables, config.model_dump_json()).returncode == -signal.SIGKILL
    assert record(search(config)) == whole
    with launch.open_for(config) as store:
        report = replay(store, store.study("tried"))
    assert report.same and report.trials == 20


def test_two_arms_may_try_the_same_architecture(describe, search):
    tiny = "{kind: decoder, width: !choice [16, 24], vocabulary: 256, body: !choice [attention, feed_forward, []]}"
    config = with_arms(describe(space=tiny, budget="{trials: 12}"), control=("random", 0.5))
    result = search(config)
    with result.store as store:
        trials = store.trials(result.study.id)
    assert Counter(trial.arm for trial in trials) == {"main": 6, "control": 6}
    assert len({trial.architecture_hash for trial in trials}) == 6
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def test_the_finals_are_entered_by_the_main_arm_alone(describe, search):
    config = describe(budget="{trials: 6}", finals="{top: 2, seeds: 1, steps: 20, baselines: [], tune: {}}")
    result = search(with_arms(config, control=("random", 0.5)))
    with result.store as store:
        trials = store.trials(result.study.id)
    main = {trial.number for trial in trials if trial.arm == "main" and trial.purpose == "search"}
    assert {each.trial for each in result.verdict.finalists} <= main


def test_arms_are_settled_once_a_study_exists(describe, search):
    config = describe(budget="{trials: 2}")
    search(config).store.close()
    with pytest.raises(UsageError, match=r"arms was .*, is .*new name"):
        search(with_arms(config, control=("random", 0.5)))


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"main": ("random", 0.2)}, "main is the search itself"),
        ({"one": ("random", 0.5), "two": ("random", 0.5)}, "sum to less than 1"),
        ({"one": ("random", 1.5)}, "less than 1"),
    ],
)
def test_arms_that_cannot_be_are_rejected(arms, message, describe):
    with pytest.raises(ValueError, match=message):
        with_arms(describe(), **arms)


def test_trials_of_a_study_without_arms_belong_to_main(describe, search):
    result = search(describe(budget="{trials: 2}"))
    with result.store as store:
        assert {trial.arm for trial in store.trials(result.study.id)} == {"main"}
    space, scores = parts(result.config).space, Scores(parts(result.config).objectives)
    (arm,) = session.arms(parts(result.config), space, scores)
    assert (arm.name, arm.share) == ("main", 1)


WRONG = {  # the method of a user's own strategy or scheduler -> what is said
    "ask": (lambda *_: ["x"], r"Mine\.ask\(0, 1, 0\) must return a list of Proposal, but returned \['x'\]"),
    "start": (lambda *_: 0, r"Mine\.start\(0\) must return at least 1, and at most the horizon, 10, but returned 0"),
    "horizon": (lambda *_: 9, r"Mine\.start\(0\) must return at least 1, and at most the horizon, 9, but returned 10"),
    "promotion": (lambda *_: Promotion(0, 1, 20), r"Mine\.promotion\(\) must return WAIT, None, or the next rung"),
}


@pytest.mark.parametrize("method", WRONG)
def test_a_wrong_answer_names_the_class_and_the_method(method, describe, search, monkeypatch):
    answer, message = WRONG[method]
    registry, name, base = (strategies, "random", Random) if method == "ask" else (schedulers, "full", Full)
    registry.find(name)
    monkeypatch.setitem(registry._things, name, type("Mine", (base,), {method: answer}))
    with pytest.raises(AnswerProblem, match=message):
        search(describe(budget="{trials: 3}"))


def test_an_error_of_a_strategy_keeps_its_traceback(describe, search, monkeypatch):
    strategies.find("random")
    broken = type("Mine", (Random,), {"propose": lambda self, rng, number, tried: {}["key"]})
    monkeypatch.setitem(strategies._things, "random", broken)
    with pytest.raises(KeyError, match="key"):
        search(describe())
