"""A replay proposes a search again from its log alone, for any number of processes and any order of results."""

import json
import threading

import pytest

from nas.cli.app import command, discover
from nas.engine import launch
from nas.engine.replay import replay

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
STRATEGIES = [
    "random",
    "{aging_evolution: {start: 4, sample: 3}}",
    "{nsga2: {start: 4, population: 6}}",
    "{model: {start: 4}}",
    "{optuna: {sampler: TPESampler, n_startup_trials: 4}}",
    "{optuna: NSGAIISampler}",
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("baselines", ["[]", "[transformer_decoder:small]"])
def test_an_asynchronous_search_is_proposed_again(strategy, baselines, describe, table, disorderly):
    config = describe(strategy=strategy, scheduler=HALVING, budget="{trials: 25}", baselines=baselines)
    result = launch.search(config, quiet=True, runner=disorderly(table))
    report = replay(result.store, result.study)
    given = 1 if "transformer" in baselines else 0
    told = [trial.known_results for trial in result.store.trials(result.study.id)]
    result.store.close()
    assert report.same, report.as_text()
    assert (report.trials, report.given) == (25, given) and report.results > 25
    assert 0 < told[-1] < report.results


def test_a_search_by_two_processes_of_a_growing_space_is_proposed_again(describe, table, disorderly):
    space = "{kind: decoder, width: !choice [16, 24, 32, 48], vocabulary: 256, body: !choice [attention, convolution]}"
    config = describe(strategy=STRATEGIES[1], space=space, budget="{trials: 6}")
    launch.search(config, quiet=True, runner=disorderly(table)).store.close()
    config = describe(strategy=STRATEGIES[1], space=space.replace("48]", "48, 56, 64, 72]"), budget="{trials: 14}")
    threads = [
        threading.Thread(
            target=lambda seed=seed: launch.search(config, quiet=True, runner=disorderly(table, seed)).store.close()
        )
        for seed in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with launch.open_for(config) as store:
        report = replay(store, store.study("tried"))
    assert report.same, report.as_text()
    assert report.trials == 14


def test_a_search_that_was_tampered_with_is_noticed(describe, search):
    result = search(describe(strategy="random"))
    changed = {**result.study.config, "seed": 1}
    result.store.update_study(result.study.id, config=changed)
    report = replay(result.store, result.store.study("tried"))
    result.store.close()
    assert [difference.trial for difference in report.differences] == list(range(12))
    assert "12 differ. The first: trial 0, proposed after 0 results, is " in report.as_text()


def test_the_command_prints_the_report(describe, search, capsys):
    config = describe()
    search(config).store.close()
    discover()
    command()(["replay", "tried", "--storage", config.storage, "--json"], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    assert report == {"same": True, "trials": 12, "given": 0, "results": 12, "differences": []}
