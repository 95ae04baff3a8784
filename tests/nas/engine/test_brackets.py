"""The contract of schedulers, tested by two that the project does not have: Hyperband, and one that waits."""

from collections import Counter, defaultdict

import pytest

from nas import report
from nas.config.schema import SearchConfig
from nas.engine import launch, planning
from nas.engine.loop import Interrupted
from nas.engine.replay import replay
from nas.report.forecasts import Paces
from nas.runners.inline import InlineRunner
from nas.schedulers.contract import WAIT, Level, Promotion
from nas.schedulers.registry import registry
from nas.store.records import Pace

BRACKETS = ((2, 6, 18), (6, 18), (18,))


class Hyperband:
    """Brackets in turn; the best third of a level continues. Li et al. 2018, https://arxiv.org/abs/1603.06560."""

    def __init__(self) -> None:
        self.results: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        self.promoted: set[tuple[int, int]] = set()

    def start(self, number):
        return BRACKETS[number % 3][0]

    def tell(self, number, rung, values, steps):
        if values is not None:
            self.results[number % 3, steps][number] = values[0]

    def started(self, number, rung, steps):
        bracket = BRACKETS[number % 3]
        self.promoted |= {(number, lower) for lower in bracket[: bracket.index(steps)]}

    def promotion(self):
        for (bracket, steps), found in self.results.items():
            rung = BRACKETS[bracket].index(steps)
            for number in sorted(found, key=found.__getitem__)[: len(found) // 3]:
                if steps < 18 and (number, steps) not in self.promoted:
                    return Promotion(number, rung + 1, BRACKETS[bracket][rung + 1])
        return None

    def is_last(self, number, rung, steps):
        return steps == 18

    def horizon(self, number):
        return 18

    def forecast(self, trials):
        found = []
        for index, bracket in enumerate(BRACKETS):
            units, start = len(range(index, trials, 3)), 0
            for steps in bracket:
                found.append(Level(units, start, steps))
                units, start = units // 3, steps
        return tuple(found)


class Patient(Hyperband):
    """Trains three trials at a time, and waits for all of them."""

    def __init__(self):
        super().__init__()
        self.started_trials = self.ended = self.most = 0

    def start(self, number):
        return 18

    def started(self, number, rung, steps):
        self.started_trials = max(self.started_trials, number + 1)

    def tell(self, number, rung, values, steps):
        self.ended += 1

    def promotion(self):
        self.most = max(self.most, self.started_trials - self.ended)
        return WAIT if self.started_trials % 3 == 0 and self.ended < self.started_trials else None


@pytest.fixture
def made(monkeypatch):
    """The schedulers that searches make."""
    found = []
    for kind in (Hyperband, Patient):
        monkeypatch.setitem(registry._all, kind.__name__.lower(), kind)
    make = registry.make
    monkeypatch.setattr(registry, "make", lambda *given: found.append(make(*given)) or found[-1])
    return found


def arms(config, **shares):
    written = {name: {"strategy": "random", "share": share} for name, share in shares.items()}
    return SearchConfig(**{**config.model_dump(), "arms": written})


@pytest.mark.usefixtures("made")
def test_every_arm_gets_the_same_brackets(describe, search):
    config = arms(describe(scheduler="hyperband", budget="{trials: 27}"), control=1 / 3)
    with search(config) as result:
        trials = result.store.trials(result.study.id)
        units = {each.number: result.store.units(result.study.id, each.number) for each in trials}
        text = report.status(result.store, result.study).to_text()
        rows = report.trials.shown(report.trials.rows(result.store, result.study, trials))
        pace = result.store.pace(result.study.id)
        assert replay(result.store, result.study).same
    first = {
        arm: Counter(units[each.number][0].steps for each in trials if each.arm == arm) for arm in ("main", "control")
    }
    assert first == {"main": {2: 6, 6: 6, 18: 6}, "control": {2: 3, 6: 3, 18: 3}}
    reached = Counter((each.arm, unit.steps) for each in trials for unit in units[each.number] if unit.rung)
    assert reached == {("main", 6): 2, ("main", 18): 2, ("control", 6): 1, ("control", 18): 1}
    assert "after 18 steps: loss" in text and "rung" not in text
    assert {row["steps"] for row in rows} == {2, 6, 18}
    assert {(each.start, each.steps): each.units for each in pace} == {
        (0, 2): 9, (0, 6): 9, (0, 18): 9, (2, 6): 3, (6, 18): 3,
    }  # fmt: skip


@pytest.mark.usefixtures("made")
def test_a_plan_tells_new_trials_from_those_that_continue(describe):
    ahead = planning.forecast(describe(scheduler="hyperband", budget="{trials: 27}"))
    fields = dict.fromkeys(planning.Plan.__dataclass_fields__)
    plan = planning.Plan(**fields | {"forecast": ahead, "spent_first": "trials"})
    assert plan._trials() == (
        "27: 9 of 2 steps, 9 of 6 steps, 9 of 18 steps; about 3 continue to 6, 4 continue to 18 steps in all"
    )
    paces = Paces([Pace("search", 0, 0, 18, 2, 36.0), Pace("search", 1, 6, 18, 2, 24.0)], ahead)
    seconds = {level: paces.seconds("search", level) for level in range(5) if ahead.rungs[level] == 18}
    assert sorted(seconds.values()) == [12.0, 18.0]


def test_a_scheduler_can_wait_for_what_runs(describe, made, disorderly, table):
    config = describe(scheduler="patient", budget="{trials: 8}")
    with launch.search(config, quiet=True, runner=disorderly(table)) as result:
        assert len(result.store.trials(result.study.id)) == 8
    assert max(each.most for each in made if isinstance(each, Patient)) == 3


def test_a_search_that_was_stopped_goes_on_with_the_same_brackets(describe, table, stopped, tmp_path):
    """The unit that ran is the first that the next process takes. It learns from the log what its trial is."""
    found = []
    for places in ((), (4, 6)):
        (folder := tmp_path / f"stopped {len(places)} times").mkdir()
        scheduler = "{hyperband: {rungs: [2, 6, 18]}}"
        config = arms(describe(folder=folder, scheduler=scheduler, budget="{trials: 18}"), control=1 / 3)
        for place in places:
            with pytest.raises(Interrupted):
                launch.search(config, quiet=True, runner=stopped(table, place))
        with launch.search(config, quiet=True, runner=InlineRunner(table)) as result:
            units = result.store.results_since(result.study.id)
            states = [each.state for each in result.store.trials(result.study.id)]
        found.append(([(each.number, each.steps, each.architecture_hash) for each in units], states))
    assert found[0] == found[1]
