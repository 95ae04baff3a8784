"""A study is resolved: its row holds every option, and a search file that continues it keeps what it leaves out."""

import enum
from dataclasses import replace

import pytest
import yaml

from nas.config.schema import SearchConfig
from nas.engine import planning
from nas.engine.replay import replay
from nas.engine.resolve import STAYS, resolve
from nas.errors import UsageError
from nas.strategies.random import Random
from nas.strategies.registry import registry as strategies

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


def options(config, part="strategy"):
    return getattr(resolve(config).config, part).options


@pytest.mark.parametrize(("trials", "start"), [(5, 4), (27, 6), (50, 12), (500, 20)])
def test_the_random_start_follows_from_the_budget(trials, start, describe):
    for name in ("nsga2", "aging_evolution", "{nsga2: {start: auto}}"):
        assert options(describe(strategy=name, budget=f"{{trials: {trials}}}"))["start"] == start
    assert options(describe(strategy="{nsga2: {start: 9}}"))["start"] == 9
    assert options(describe(strategy="optuna", budget=f"{{trials: {trials}}}"))["n_startup_trials"] == min(start, 10)


def test_an_arm_starts_as_its_share_of_the_budget_says(describe):
    arms = {"control": {"strategy": "nsga2", "share": 0.5}}
    config = SearchConfig(**{**describe(strategy="nsga2", budget="{trials: 40}").model_dump(), "arms": arms})
    found = resolve(config).config
    assert found.strategy.options["start"] == found.arms["control"].strategy.options["start"] == 5


def test_every_option_is_in_the_row_and_resolving_it_again_changes_nothing(describe):
    config = describe(strategy="aging_evolution", scheduler=HALVING)
    found = resolve(config)
    assert found.row["strategy"]["options"] == {
        "population": 100, "sample": 20, "start": 4, "moves": "all",
    }  # fmt: skip
    assert found.row["scheduler"]["options"].keys() >= {"rungs", "factor", "rank", "poor_rungs"}
    assert found.row["task"]["options"].keys() >= {"length", "batch", "split_by", "documents", "evaluation"}
    assert found.row["recipe"]["optimiser"]["adamw"].keys() >= {"learning_rate", "betas", "weight_decay"}
    assert found.row["step_tokens"] == 16 * 128
    assert resolve(found.config).row == found.row == resolve(SearchConfig.stored(found.row)).row


def test_a_larger_budget_does_not_change_the_start(describe, search):
    search(describe(strategy="nsga2", budget="{trials: 16}")).store.close()
    result = search(describe(strategy="nsga2", budget="{trials: 60}"))
    with result.store as store:
        operators = [trial.operator for trial in store.trials(result.study.id)]
        assert store.study("tried").config["strategy"]["options"]["start"] == operators.count("random") == 4
        assert replay(store, result.study).same


BEGUN = {"strategy": "{nsga2: {population: 20}}", "scheduler": HALVING, "budget": "{trials: 2}", "seed": "3"}
KEPT = {  # other ways to write the same search: what they leave out is as the study has it
    "the same": {},
    "an option left out": {"strategy": "nsga2"},
    "auto": {"strategy": "{nsga2: {start: auto}}"},
    "the default written out": {"scheduler": "{halving: {rungs: [2, 4, 8], factor: 2, rank: quality}}"},
    "another budget": {"budget": "{trials: 3}"},
    "other attempts": {"limits": "{attempts: 7}"},
    "another baseline": {"baselines": "[transformer_decoder:tiny]"},
}
REFUSED = {  # a change -> the message
    "strategy": ("aging_evolution", "strategy was {'nsga2': .*, is {'aging_evolution'"),
    "scheduler": (HALVING.replace("factor: 2", "factor: 3"), "scheduler was .*'factor': 2.*, is .*'factor': 3"),
    "objectives": ("[loss]", r"objectives was \['loss', 'parameters'\], is \['loss'\]"),
    "task": ("{language_model: {length: 64}}", "task was .*'length': 128.*, is .*'length': 64"),
    "seed": ("4", "seed was 3, is 4"),
}


@pytest.fixture
def begun(describe, search):
    """The store of a study."""
    with search(describe(**BEGUN)).store as store:
        yield store


@pytest.mark.parametrize("how", KEPT)
def test_a_file_continues_its_study(how, describe, begun):
    before = begun.study("tried").config
    row = resolve(describe(**BEGUN | KEPT[how]), begun).row
    assert {name: row[name] for name in STAYS} == {name: before[name] for name in STAYS}


def test_keys_that_a_file_leaves_out_are_those_of_the_study(describe, begun):
    config = describe(**BEGUN)
    short = SearchConfig(**config.model_dump(exclude={"strategy", "seed", "recipe"}))
    assert resolve(short, begun).row == begun.study("tried").config


@pytest.mark.parametrize("key", REFUSED)
def test_another_search_is_refused(key, describe, begun):
    changed, message = REFUSED[key]
    with pytest.raises(UsageError, match=rf"started with other settings.*{message}.*new name \(study"):
        resolve(describe(**BEGUN | {key: changed}), begun)
    with pytest.raises(UsageError, match=message):
        planning.found(describe(**BEGUN | {key: changed}))


def test_auto_is_the_strategy_that_was_chosen_when_the_study_began(describe, search):
    assert resolve(describe(strategy="auto")).config.strategy.name == "model"
    with search(describe(strategy="{nsga2: {start: 7}}", budget="{trials: 1}")).store as store:
        assert resolve(describe(strategy="auto"), store).config.strategy.options["start"] == 7


class Mode(enum.Enum):
    FEW = "few"
    MANY = "many"


@pytest.fixture
def moody(monkeypatch):
    """Registers a strategy `moody` of the user's own, whose option `mode` follows from the budget."""

    class Moody(Random):
        def __init__(self, space, *, mode: Mode | None = None, trials: int | None = None, **given):
            super().__init__(space, **given)
            self.mode = mode or (Mode.MANY if (trials or 0) > 3 else Mode.FEW)
            self.resolved = {"mode": self.mode.value}

        def propose(self, rng, number, tried):
            return replace(super().propose(rng, number, tried), operator=self.mode.value)

    monkeypatch.setitem(strategies._things, "moody", Moody)


@pytest.mark.parametrize(
    ("first", "then"), [("moody", "moody"), ("{moody: few}", "{moody: {mode: few}}"), ("{moody: {mode: few}}", "moody")]
)
def test_an_option_of_the_users_own_strategy_stays(first, then, describe, search, moody):
    search(describe(strategy=first, budget="{trials: 2}")).store.close()
    with search(describe(strategy=then, budget="{trials: 4}")) as result:
        assert result.study.config["strategy"] == {"name": "moody", "options": {"mode": "few"}}
        assert {trial.operator for trial in result.store.trials(result.study.id)} == {"few"}
    with pytest.raises(UsageError, match=r"was {'moody': {'mode': 'few'}}, is {'moody': {'mode': 'many'}}"):
        search(describe(strategy="{moody: many}"))


def test_a_flat_option_of_a_recipe_stays_flat_so_that_finals_can_try_others(describe):
    config = describe().model_copy(update={"recipe": {"learning_rate": 0.5, "schedule": "linear"}})
    recipe = resolve(config).config.recipe
    assert recipe["learning_rate"] == 0.5 and "learning_rate" not in recipe["optimiser"]["adamw"]
    assert list(recipe["schedule"]) == ["linear"] and yaml.safe_load(yaml.safe_dump(recipe)) == recipe
