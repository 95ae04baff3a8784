"""A key in the wrong part of a search file is told the part that it belongs to."""

import pytest

from nas.config.elsewhere import PLACES, TOP, elsewhere
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
