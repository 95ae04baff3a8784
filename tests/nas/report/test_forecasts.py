"""When a search will end, from its database."""

import pytest

from nas import report
from nas.engine import launch
from nas.engine.forecast import forecast
from nas.engine.resolve import resolve
from nas.store import TrialState

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


@pytest.fixture
def unstarted(describe):
    """`unstarted(...)`: (store, study) of a search that has not started."""
    stores = []

    def make(**changes):
        config = describe(scheduler=HALVING, **changes)
        stores.append(launch.open_for(config))
        return stores[-1], launch.enter(stores[-1], resolve(config, stores[-1]))

    yield make
    for store in stores:
        store.close()


def train(store, study, number, seconds, purpose="search", steps=2, last=False):
    """A unit that ended after `seconds`."""
    unit = store.add_trial(
        study.id, number, (f"hash{number}", "text"), seed=0, purpose=purpose, operator="random", choices={},
        known_results=0, steps=steps, owner="me",
    ).unit  # fmt: skip
    store.finish(unit.id, "me", 1, {"loss": 2.0}, last=last, seconds=seconds)


def test_the_eta_follows_from_what_units_took(unstarted):
    store, study = unstarted(
        budget="{trials: 12}",
        finals="{top: 1, seeds: 4, steps: 8, baselines: [], tune: {}}",
    )

    assert report.eta(store, study) is None
    for number in range(2):
        train(store, study, number, 4.0)  # 2 steps: the rungs above train 2 and 4 more
    found = report.eta(store, study)

    assert found.seconds == pytest.approx(10 * 4 + 7 * 4 + 3 * 8)
    assert (found.phase, found.units, found.workers, found.finals_follow) == ("search", 20, 1, True)


def test_failed_units_say_nothing_about_the_eta(unstarted):
    store, study = unstarted(budget="{trials: 3}")
    for number in range(3):
        unit = store.add_trial(
            study.id, number, (f"hash{number}", "text"), seed=0, purpose="search", operator="random", choices={},
            known_results=0, steps=2, owner="me",
        ).unit  # fmt: skip
        store.fail(unit.id, "me", 1, "too slow", "", seconds=1e6)

    assert report.eta(store, study) is None


def test_the_eta_of_the_finals_waits_for_their_last_unit(unstarted):
    store, study = unstarted(
        budget="{trials: 2}",
        finals="{top: 1, seeds: 4, steps: 8, baselines: [], tune: {}}",
    )
    for number in range(2):
        train(store, study, number, 4.0)
    train(store, study, 2, 16.0, purpose="final", steps=8, last=True)
    found = report.eta(store, study)

    assert (found.phase, found.units, found.seconds) == ("finals", 3, pytest.approx(3 * 16))


def test_the_eta_is_cut_off_by_the_budget_of_minutes(unstarted):
    store, study = unstarted(budget="{trials: 1000, minutes: 1}")
    for number in range(2):
        train(store, study, number, 5.0)

    assert report.eta(store, study).seconds == pytest.approx(50)


def test_a_running_study_has_an_eta_in_its_status_and_an_ended_one_none(unstarted):
    store, study = unstarted(budget="{trials: 4}")
    for number in range(2):
        train(store, study, number, 5.0)
    store.add_trial(
        study.id, 2, ("hash2", "text"), seed=0, purpose="search", operator="random", choices={}, known_results=0,
        steps=2, owner="me",
    )  # fmt: skip

    assert report.status(store, study).eta.phase == "search"
    assert "eta       about " in report.status(store, study).to_text()
    (unit,) = store.leased(study.id, "me")
    store.finish(unit.id, "me", 1, {"loss": 2.0}, last=False)
    store.stop_trials(study.id)
    assert report.status(store, study).states == {TrialState.STOPPED: 3}
    assert report.status(store, study).eta is None


def test_a_forecast_counts_units_by_rung_and_finals(describe):
    ahead = forecast(
        describe(
            scheduler=HALVING,
            budget="{trials: 9}",
            finals="{top: 3, seeds: 3, steps: 5, baselines: [], tune: {}}",
        )
    )

    assert (ahead.rungs, ahead.units, ahead.steps) == ((2, 4, 8), (9, 4, 2), (2, 2, 4))
    assert (ahead.final_units, ahead.workers) == (9, 1)
    assert [(each.units, each.steps) for each in ahead.finals] == [(9, 5)]
