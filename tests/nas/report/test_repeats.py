"""How much the seeds of a search differ."""

import math

import pytest

from nas import report
from nas.report.control import Control
from nas.report.probes import Probe
from nas.report.repeats import Repeats, Spread, repeats


def test_the_interval_of_a_mean_is_students() -> None:
    found = Spread((1.0, 2.0, 3.0))
    assert (found.mean, found.deviation) == (2.0, 1.0)
    assert found.half_width == pytest.approx(4.303 / math.sqrt(3))
    assert Spread((1.0,)).half_width == math.inf


def test_studies_that_differ_in_their_seed_are_compared(describe, search, tmp_path) -> None:
    results = [search(describe(seed=str(seed), folder=tmp_path / str(seed), budget="{trials: 6}")) for seed in (0, 1)]
    found = repeats([(each.store, each.study) for each in results])
    best = [report.best(each.store, each.study, None, 1)[0].values["loss"] for each in results]
    for each in results:
        each.close()
    assert found.seeds == (0, 1)
    assert found.best.values == tuple(best)
    assert max(found.shares.values) <= 1 < sum(found.shares.values) + 1
    assert found.to_text().startswith("The search with 2 seeds\n")
    told = found.to_dict()["best"]
    assert told["low"] < min(best) < max(best) < told["high"]  # two values have a wide interval


def test_the_verdicts_of_the_finals_belong_to_the_result(describe, search, tmp_path) -> None:
    finals = "{top: 1, seeds: 2, steps: 10, baselines: transformer, match: parameters, shapes: usual, tune: {}}"
    made = describe(budget="{trials: 3}", finals=finals, folder=tmp_path)
    with search(made) as result:
        found = repeats([(result.store, result.study)], ["The study 'tried-seed1' has no result."])
    assert found.verdicts["tried"].startswith("Verdict: ")
    assert found.to_text().endswith(f"\ntried: {found.verdicts['tried']}\nThe study 'tried-seed1' has no result.")
    assert found.to_dict()["best"]["low"] is None  # one value has no interval


def test_an_objective_that_a_machine_has_found_for_one_study_alone_is_left_out(describe, search, tmp_path) -> None:
    later = "[loss, parameters, {latency: {on: {machine: laptop}, name: laptop_ms}}]"
    results = [
        search(describe(seed=str(seed), folder=tmp_path / str(seed), budget="{trials: 3}", objectives=later))
        for seed in (0, 1)
    ]
    store = results[1].store
    for trial in store.trials(results[1].study.id):
        store.add_value(trial.id, {"name": "laptop_ms", "direction": "minimize"}, 1.0, rung=3)
    found = repeats([(each.store, each.store.study("tried")) for each in results])
    for each in results:
        each.close()
    assert found.left_out == ("laptop_ms",)
    assert "The fronts leave out laptop_ms." in found.sentences()[0]
    assert max(found.shares.values) <= 1 and min(found.fronts) > 0


def test_the_best_trials_are_those_of_an_objective_that_all_studies_have(
    describe, search, tmp_path, monkeypatch
) -> None:
    """The first objective may be a probe that was demoted."""
    probe = Probe("loss", 3, None, demoted=True)
    monkeypatch.setattr("nas.report.repeats.probes", lambda store, study: [probe])
    with search(describe(budget="{trials: 6}", objectives="[loss, parameters]", folder=tmp_path)) as result:
        found = repeats([(result.store, result.study)])
        (fewest,) = report.best(result.store, result.study, "parameters", 1)
        (first,) = report.best(result.store, result.study, "loss", 1)
    assert first.values["parameters"] > fewest.values["parameters"], "else this test shows nothing"
    assert (found.objective, found.best.values) == ("parameters", (fewest.values["parameters"],))


def test_the_seeds_together_decide_about_a_control() -> None:
    def control(share: float) -> Control:
        return Control("control-random", "random search", (share, 0.8), -0.1, 0.3, (5, 5), (1e6, 1e6), "FLOPs")

    some = Spread((0.9, 0.91, 0.92))
    found = Repeats(
        "loss", ("a", "b", "c"), (0, 1, 2), some, some, (3, 3, 3), {"control-random": tuple(map(control, some.values))}
    )
    assert found.sentences()[1].startswith("The search was better than random search over 3 seeds: ")
    assert {row["than random search"] for row in found.rows()} == {"not better"}
    told = found.to_dict()["differences"]["control-random"]
    assert told["mean"] == pytest.approx(0.11)
    assert told["verdict"] == "better" and 0 < told["low"] < told["high"]
