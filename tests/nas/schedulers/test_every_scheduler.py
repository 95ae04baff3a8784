"""What holds for every scheduler."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nas.schedulers.registry import schedulers

VALUES = st.one_of(st.none(), st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float)))
EVENTS = st.lists(st.tuples(st.booleans(), VALUES), min_size=1, max_size=50)
several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


class Run:
    """A search: it starts units as the engine does, and notes what was called and what was promoted.

    probe: each trial begins with a unit that trains nothing, which schedulers are not told of, so that rung 1 is its
    first training unit.
    """

    def __init__(self, scheduler, probe=False):
        self.scheduler, self.probe = scheduler, probe
        self.ended = {}  # trial -> (rung, steps, values) of its newest unit
        self.log, self.promotions, self.trials = [], [], 0

    def step(self, promotes, values):
        """Start a promotion, if one is asked for and there is one, else a new trial; it ends with `values`."""
        promotion = self.scheduler.promotion() if promotes else None
        if promotion is None:
            number, rung, steps = self.trials, int(self.probe), self.scheduler.start(self.trials)
            self.trials += 1
        else:
            self.check(promotion)
            self.promotions.append(promotion)
            number, rung, steps = promotion.number, promotion.rung, promotion.steps
        self.call("started", number, rung, steps)
        self.call("tell", number, rung, values, steps)
        self.ended[number] = rung, steps, values

    def check(self, promotion):
        rung, steps, values = self.ended[promotion.number]
        assert promotion == self.scheduler.promotion(), "asking changed the answer"
        assert values is not None, "a failed trial continues"
        assert promotion.rung == rung + 1
        assert steps < promotion.steps <= self.scheduler.horizon(promotion.number)
        assert not self.scheduler.is_last(promotion.number, rung, steps)

    def call(self, method, *arguments):
        getattr(self.scheduler, method)(*arguments)
        self.log.append((method, arguments, self.scheduler.promotion()))


def run(scheduler, events, probe=False):
    made = Run(scheduler, probe)
    for event in events:
        made.step(*event)
    return made


@several
@given(events=EVENTS)
def test_only_a_trial_that_ended_well_continues_and_each_rung_once(new, events):
    promotions = run(new(), events).promotions
    assert len({(each.number, each.rung) for each in promotions}) == len(promotions)


@several
@given(events=EVENTS)
def test_rebuilt_from_the_log_it_decides_the_same_after_each_entry(new, events):
    again = new()
    for method, arguments, promotion in run(new(), events).log:
        getattr(again, method)(*arguments)
        assert again.promotion() == promotion


@several
@given(events=EVENTS)
def test_a_probe_before_the_training_changes_the_rungs_alone(new, events):
    plain, probed = run(new(), events), run(new(), events, probe=True)
    assert [(each.number, each.rung + 1, each.steps) for each in plain.promotions] == [
        (each.number, each.rung, each.steps) for each in probed.promotions
    ]


@several
@given(events=EVENTS)
def test_a_promotion_that_was_started_is_not_made_again(new, events):
    scheduler = run(new(), events).scheduler
    made = set()
    while promotion := scheduler.promotion():
        assert (promotion.number, promotion.rung) not in made
        made.add((promotion.number, promotion.rung))
        scheduler.started(promotion.number, promotion.rung, promotion.steps)


def test_a_failure_at_once_is_no_candidate(new):
    scheduler = new()
    for number in range(12):
        scheduler.started(number, 0, scheduler.start(number))
        scheduler.tell(number, 0, None, scheduler.start(number))
    assert scheduler.promotion() is None


def test_a_trial_starts_with_the_same_steps_every_time_within_its_horizon(new):
    for number in range(9):
        steps = new().start(number)
        assert 1 <= steps == new().start(number) <= new().horizon(number)


def test_the_last_unit_of_a_trial_ends_at_its_horizon(new):
    for number in range(9):
        assert new().is_last(number, 9, new().horizon(number))


@pytest.mark.parametrize("trials", [1, 2, 7, 100])
def test_the_forecast_starts_every_trial_once_and_grows_with_the_steps(new, trials):
    scheduler, levels = new(), new().forecast(trials)
    assert sum(level.units for level in levels if level.start == 0) == trials
    assert all(level.units >= 0 and 0 <= level.start < level.steps for level in levels)
    assert [level.steps for level in levels] == sorted(level.steps for level in levels)
    assert max(level.steps for level in levels) <= max(scheduler.horizon(number) for number in range(trials))
    assert {scheduler.start(number) for number in range(trials)} == {each.steps for each in levels if not each.start}


def test_every_scheduler_is_tried():
    known = {"full", "halving", "hurdles", "hyperband"}
    assert set(schedulers()) == known, "add the new one to `new` in conftest.py"
