"""How much the seeds of a search differ."""

import math

import pytest

from nas import report
from nas.report.control import Control
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
