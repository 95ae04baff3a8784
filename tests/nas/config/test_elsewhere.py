"""A key in the wrong part of a search file is told the part that it belongs to."""

import pytest

from nas.config.elsewhere import PLACES, TOP, elsewhere
from nas.config.schema import SearchConfig
from nas.schedulers.registry import registry as schedulers
from nas.strategies.registry import registry as strategies
from nas.training.recipe import Recipe


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("learning_rate", "`recipe: {learning_rate: 1e-3}`"),
        ("lr", "`recipe: {learning_rate: 1e-3}`"),
        ("optimizer", "`recipe: {optimiser: adamw}`"),
        ("optimiser", "`recipe: {optimiser: adamw}`"),
        ("workers", "`runner: {ray: {workers: 2}}`"),
        ("data", "`task: {language_model: {data: texts/*.txt}}`"),
        ("epochs", "`scheduler: {full: {steps: 1000}}`"),
        ("trials", "`budget: {trials: 50}`"),
        ("rungs", "`scheduler: {halving: {rungs: [40, 120, 360]}}`"),
        ("population", "`strategy: {aging_evolution: {population: 50}}`"),
        ("top", "`finals: {top: 3}`"),
        ("heads", "the field `heads` of the architecture or its blocks, in `space`"),
        ("d_model", "the field `width` of the architecture"),
    ],
)
def test_the_part_is_named(name, said):
    assert said in elsewhere(name, TOP)


def test_a_key_in_its_own_part_and_an_unknown_key_get_no_answer():
    assert elsewhere("learning_rate", "recipe") == elsewhere("seed", TOP) == elsewhere("sapce", TOP) == ""


@pytest.mark.parametrize("name", [name for name, (part, _) in PLACES.items() if part == "recipe"])
def test_keys_of_the_recipe_are_keys_of_the_recipe(name):
    with pytest.raises(Exception, match="there is no 'nonsense'") as caught:
        Recipe.read({"nonsense": 1})
    assert f" {name}" in str(caught.value)


def test_options_of_schedulers_and_strategies_exist():
    known = {
        "scheduler": {each for name in schedulers.names() for each in schedulers.options(name)},
        "strategy": {each for name in strategies.names() for each in strategies.options(name)},
    }
    assert all(name in known[part] for name, (part, text) in PLACES.items() if part in known and "it is" in text)


def test_parts_of_the_search_file_have_their_keys():
    fields = {part: SearchConfig.model_fields[part].annotation.model_fields for part in ("budget", "finals", "limits")}
    assert all(name in fields[part] for name, (part, _) in PLACES.items() if part in fields)
