"""Options that a study keeps although its search file leaves them out."""

import enum
import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from nas.config import factory
from nas.config.schema import BARE, Named, SearchConfig
from nas.engine import planning
from nas.engine.checks import continuing
from nas.engine.replay import replay
from nas.engine.scores import Scores
from nas.engine.settled import settle
from nas.errors import UsageError
from nas.schedulers.full import Full
from nas.schedulers.registry import registry as schedulers
from nas.store import open_store
from nas.strategies.random import Random
from nas.strategies.registry import registry as strategies

KEPT = Path(__file__).parents[2] / "kept" / "studies"
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


@pytest.mark.parametrize(("trials", "start"), [(5, 4), (27, 6), (50, 12), (500, 20)])
def test_the_random_start_follows_from_the_budget(trials, start, describe):
    for name in ("nsga2", "aging_evolution", "{nsga2: {start: auto}}"):
        settled = settle(describe(strategy=name, budget=f"{{trials: {trials}}}"))
        assert settled.strategy.options["start"] == start
    assert settle(describe(strategy="{nsga2: {start: 9}}")).strategy.options["start"] == 9


def test_a_sampler_of_optuna_starts_with_fewer_random_trials_too(describe):
    options = settle(describe(strategy="optuna", budget="{trials: 27}")).strategy.options
    assert options["n_startup_trials"] == 6
    assert settle(describe(strategy="optuna", budget="{trials: 270}")).strategy.options["n_startup_trials"] == 10


def test_an_arm_starts_as_its_share_of_the_budget_says(describe):
    arms = {"control": {"strategy": "nsga2", "share": 0.5}}
    config = SearchConfig(**{**describe(strategy="nsga2", budget="{trials: 40}").model_dump(), "arms": arms})
    settled = settle(config)
    assert settled.strategy.options["start"] == settled.arms["control"].strategy.options["start"] == 5


def test_with_27_trials_most_are_children(describe, search):
    result = search(describe(strategy="nsga2", scheduler=HALVING, budget="{trials: 27}"))
    with result.store as store:
        operators = [trial.operator for trial in store.trials(result.study.id)]
    assert operators.count("random") == 6 and len(operators) == 27


def test_a_larger_budget_does_not_change_the_start(describe, search):
    search(describe(strategy="nsga2", budget="{trials: 16}")).store.close()
    result = search(describe(strategy="nsga2", budget="{trials: 60}"))
    with result.store as store:
        operators = [trial.operator for trial in store.trials(result.study.id)]
        assert store.study("tried").config["strategy"]["options"]["start"] == 4
        assert operators.count("random") == 4
        assert replay(store, result.study).same


def test_a_study_keeps_its_rank_and_rejects_another(describe, search):
    search(describe(scheduler=HALVING, budget="{trials: 2}")).store.close()
    written = HALVING.replace("factor: 2", "factor: 2, rank: quality")
    search(describe(scheduler=written, budget="{trials: 3}")).store.close()
    with pytest.raises(UsageError, match=r"scheduler was .*quality.*, is .*pareto"):
        search(describe(scheduler=written.replace("quality", "pareto"), budget="{trials: 4}"))


def test_a_search_file_rejects_a_rank_by_something_else(describe):
    with pytest.raises(UsageError, match=r"scheduler\.halving.*rank names 'los'.*Did you mean 'loss'"):
        describe(scheduler="{halving: {rungs: [2, 4], rank: {los: 1}}}")


@pytest.fixture(params=["finished", "digits"])
def old(request, tmp_path):
    """The store and the study of a search that an earlier release made."""
    database = tmp_path / "old.db"
    database.write_bytes(gzip.decompress((KEPT / f"{request.param}.db.gz").read_bytes()))
    with open_store(database) as store:
        yield store, store.study(request.param)


def test_a_study_of_an_earlier_release_promotes_as_it_did(old):
    """It ran one unit at a time, so every promotion is that of the results before it."""
    store, study = old
    config = SearchConfig(**study.config)
    assert config.scheduler.options["rank"] == "pareto"
    assert config.strategy.options["start"] in (4, 20), "what its file says, or the default of that release"
    scheduler, scores = factory.scheduler(config), Scores(factory.objectives(config))
    for unit in store.results_since(study.id):
        if unit.purpose == "search":
            promotion = scheduler.promotion()
            assert (promotion and (promotion.number, promotion.rung)) == (
                (unit.number, unit.rung) if unit.rung else None
            )
            scheduler.started(unit.number, unit.rung, unit.steps)
            scheduler.tell(unit.number, unit.rung, scores.minimised(unit.values), unit.steps)


def test_the_file_of_an_earlier_release_continues_its_study(old):
    _, study = old
    kept = SearchConfig(**study.config)
    parts = {name: getattr(kept, name) for name in ("scheduler", "strategy")}
    new = ("rank", "start") if kept.study == "digits" else ("rank",)
    written = {
        name: part.model_copy(update={"options": {key: each for key, each in part.options.items() if key not in new}})
        for name, part in parts.items()
    }
    assert continuing._settled(settle(kept.model_copy(update=written), kept), "scheduler") == kept.scheduler.written()
    assert settle(kept.model_copy(update=written), kept).strategy == kept.strategy


def test_a_study_keeps_the_strategy_that_it_was_created_with(describe):
    new = SearchConfig(**describe().model_dump(exclude={"strategy"}))
    assert "strategy" not in new.model_fields_set and new.strategy.name == "auto"
    assert settle(new).strategy.name == "model"
    old = settle(describe(strategy="{nsga2: {start: 7}}"))
    assert settle(new, old).strategy == old.strategy, "a file that names none continues with that of the study"
    automatic = describe(strategy="auto")
    assert settle(automatic, old).strategy == old.strategy
    assert settle(automatic).strategy.name == "model"


@pytest.fixture(params=["strategy", "scheduler"])
def settling(request, monkeypatch):
    """`settling(settled)`: registers a strategy or scheduler `mine`, and returns the key of a search file for it."""
    registry, base = {"strategy": (strategies, Random), "scheduler": (schedulers, Full)}[request.param]

    def register(settled):
        def init(self, *given, **named):
            base.__init__(self, *given, **{"steps": 2} if base is Full else named)
            self.settled = settled

        monkeypatch.setitem(registry._things, "mine", type("Mine", (base,), {"__init__": init}))
        return {request.param: "mine"}

    return register


@pytest.mark.parametrize(
    ("settled", "said"), [(None, "settled answered None"), ({"start": object()}, r"settled\['start'\]")]
)
def test_a_plan_and_a_search_reject_what_a_study_cannot_keep(describe, search, settling, settled, said):
    config = describe(**settling(settled))
    for run in (planning.plan, search):
        with pytest.raises(UsageError, match=rf"The (strategy|scheduler) 'mine' broke its contract: {said}"):
            run(config)
    with open_store(config.storage) as store:
        assert store.studies() == []


def test_what_is_no_option_of_the_constructor_is_rejected_before_the_study(describe):
    class Mine(Random):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            self.settled = {"foo": 1}

    strategies._things["mine"] = Mine
    try:
        with pytest.raises(
            UsageError, match=r"'mine' broke its contract: settled answered {'foo': 1}\. .*argument 'foo'"
        ):
            settle(describe(strategy="mine"))
    finally:
        del strategies._things["mine"]


class Mode(enum.Enum):
    FEW = "few"
    MANY = "many"


@pytest.fixture
def moody(monkeypatch):
    """Registers a strategy `moody` with the option `mode`; `moody(settled)` is what it settles today in its place."""

    def register(settled=None):
        class Moody(Random):
            def __init__(self, space, *, mode: Mode | None = None, trials: int | None = None, **given):
                super().__init__(space, **given)
                self.mode = mode or (Mode.MANY if (trials or 0) > 3 else Mode.FEW)
                self.settled = {"mode": self.mode} if settled is None else settled

            def propose(self, rng, number, tried):
                return replace(super().propose(rng, number, tried), operator=self.mode.value)

        monkeypatch.setitem(strategies._things, "moody", Moody)

    register()
    return register


def operators(result):
    with result.store as store:
        return [trial.operator for trial in store.trials(result.study.id)]


def test_an_enum_is_stored_as_its_value_and_made_again(describe, search, moody):
    search(describe(strategy="moody", budget="{trials: 2}")).store.close()
    for today in (None, {"mode": object()}):
        moody(today)
        result = search(describe(strategy="moody", budget="{trials: 4}"))
        assert result.study.config["strategy"] == {"name": "moody", "options": {"mode": "few"}}
        assert operators(result) == ["few"] * 4


def test_an_option_without_its_name_is_stored_once_and_equals_the_same_with_its_name(describe, search, moody):
    for trials, written in enumerate(["{moody: many}", "{moody: {mode: many}}", "moody"], start=2):
        result = search(describe(strategy=written, budget=f"{{trials: {trials}}}"))
        assert result.study.config["strategy"]["options"] == {"mode": "many"}
        assert operators(result) == ["many"] * trials
    with pytest.raises(UsageError, match=r"was {'moody': {'mode': 'many'}}, is {'moody': {'mode': 'few'}}"):
        search(describe(strategy="{moody: few}"))


@pytest.mark.parametrize("kept", [{BARE: "many"}, {BARE: "many", "mode": "many"}])
def test_a_study_that_keeps_an_option_without_its_name_goes_on(kept, describe, moody):
    known = Named(name="moody", options=kept)
    study = settle(describe(strategy="{moody: many}")).model_copy(update={"strategy": known})
    for written in ("{moody: many}", "{moody: {mode: many}}"):
        assert settle(describe(strategy=written), study).strategy == known
    assert settle(describe(strategy="{moody: few}"), study).strategy != known
