"""A lowest rung that does not rank the trials is skipped."""

import random
from types import SimpleNamespace

import pytest

from nas import report
from nas.engine.replay import replay
from nas.schedulers.registry import make
from nas.store.records import RungResult
from nas.work import Outcome


def ran(scheduler, trials: int, agreement: float, seed: int = 2) -> list[int]:
    """The first steps of each trial. agreement: how much the first level says about the next."""
    rng, quality, started = random.Random(seed), {}, []
    rung: dict[int, int] = {}
    while len(started) < trials or scheduler.promotion() is not None:
        found = scheduler.promotion()
        if found is None:
            number, steps = len(started), scheduler.start(len(started))
            started.append(steps)
            quality[number] = rng.random()
            rung[number] = 0
        else:
            number, steps = found.number, found.steps
            rung[number] = found.rung
        scheduler.started(number, rung[number], steps)
        noise = rng.random() if steps == 2 else 0.0
        value = agreement * quality[number] + (1 - agreement) * noise
        scheduler.tell(number, rung[number], (value if steps == 2 else quality[number],), steps)
    return started


def test_later_trials_start_higher() -> None:
    found = ran(make("halving", rungs=[2, 6, 18], factor=2), 80, agreement=0.0)
    assert found[0] == 2 and found[-1] == 6
    assert found == sorted(found)  # from one trial on


def test_a_rung_that_ranks_is_kept() -> None:
    assert set(ran(make("halving", rungs=[2, 6, 18], factor=2), 80, agreement=0.9)) == {2}


def test_it_can_be_switched_off() -> None:
    assert set(ran(make("halving", rungs=[2, 6, 18], factor=2, poor_rungs="kept"), 80, agreement=0.0)) == {2}


def test_the_last_two_rungs_stay() -> None:
    assert set(ran(make("halving", rungs=[2, 6], factor=2), 80, agreement=0.0)) == {2}


@pytest.mark.parametrize("name, trials", [("halving", 70), ("hyperband", 140)])
def test_a_search_says_so_and_replays(name, trials, describe, search) -> None:
    def unit(work, progress=None):
        luck = random.Random(work.architecture).random()
        loss = 1 - luck if work.steps == 2 else luck  # the lowest rung ranks the other way round
        return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, metrics={"loss": loss})

    scheduler = f"{{{name}: {{rungs: [2, 6, 18], factor: 2}}}}"
    with search(describe(scheduler=scheduler, budget=f"{{trials: {trials}}}"), unit) as result:
        assert replay(result.store, result.study).same
        text = report.status(result.store, result.study).to_text()
    assert "The rung at 2 steps did not rank the trials, so later ones started at 6 steps." in text
    assert "The rung at 6 steps" not in text


def test_brackets_that_start_higher_are_not_called_skipped_rungs(describe, search) -> None:
    with search(describe(scheduler="{hyperband: {rungs: [2, 6, 18]}}", budget="{trials: 40}")) as result:
        assert report.ranking(result.store, result.study).starts == ()


def test_a_rung_between_those_that_two_brackets_skipped_is_not_called_poor() -> None:
    scheduler = {"name": "hyperband", "options": {"rungs": (2, 6, 18, 54, 162), "factor": 2}}
    usual = [make("hyperband", **scheduler["options"]).start(number) for number in range(100)]
    first = usual[:50] + [{2: 6, 18: 54}.get(steps, steps) for steps in usual[50:]]
    results = [RungResult(number, steps, number / 7 % 1, None, None, None) for number, steps in enumerate(first)]
    started = [SimpleNamespace(number=number, arm="main") for number in range(100)]
    store = SimpleNamespace(rung_results=lambda *_: results, trials=lambda *_, **__: started)
    study = SimpleNamespace(
        id=1, objectives=[{"name": "loss", "direction": "minimize"}], config={"scheduler": scheduler}
    )
    found = report.ranking(store, study)
    assert found.skipped == ((2, 6), (18, 54)) and found.starts == (2, 6, 18, 54)
    assert not any("The rung at 6 steps" in each for each in found.of_rungs())
