"""A recipe is checked, and does what it says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nas.errors import UsageError
from nas.tasks.vision.digits import Digits
from nas.training.recipe import Recipe


@given(horizon=st.integers(1, 2_000), warmup=st.one_of(st.floats(0, 0.9), st.integers(1, 500)))
def test_the_rate_rises_to_its_peak_and_comes_down_to_the_floor(horizon, warmup):
    recipe = Recipe.read({"warmup": warmup, "floor": 0.1})
    rates = [recipe.rate(1.0, step, horizon) for step in range(horizon)]
    peak = rates.index(max(rates))
    assert all(0 < rate <= 1 for rate in rates)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    if warmup < horizon - 1:
        assert rates[-1] == pytest.approx(0.1)
    if warmup < horizon:
        assert recipe.rate(1.0, horizon + 10, horizon) == pytest.approx(0.1)


def test_a_warm_up_is_a_fraction_or_a_number_of_steps():
    assert Recipe.read({"warmup": 0.5}).rate(1.0, 4, 10) == 1.0
    assert Recipe.read({"warmup": 4}).rate(1.0, 1, 1_000) == 0.5
    assert Recipe.read({"warmup": 0}).rate(1.0, 0, 10**6) == pytest.approx(1.0)


def test_norms_biases_and_embeddings_do_not_decay():
    model = nn.ModuleDict({"table": nn.Embedding(5, 4), "norm": nn.LayerNorm(4), "linear": nn.Linear(4, 3)})
    decayed, kept = Recipe.read({"weight_decay": 0.3}).optimiser_for(model).param_groups
    assert decayed["weight_decay"] == 0.3 and kept["weight_decay"] == 0.0
    assert [parameter is model["linear"].weight for parameter in decayed["params"]] == [True]
    assert len(kept["params"]) == 4


def test_a_table_tied_to_the_output_counts_once_and_as_an_embedding():
    model = nn.ModuleDict({"out": nn.Linear(4, 5, bias=False), "table": nn.Embedding(5, 4)})
    model["out"].weight = model["table"].weight
    decayed, kept = Recipe().optimiser_for(model).param_groups
    assert decayed["params"] == [] and len(kept["params"]) == 1


def test_a_subclass_that_scores_its_own_outputs_says_itself_what_its_targets_are():
    class Echo(Digits):
        def outputs(self, model, batch, context): ...

    class Values(Echo):
        def outputs(self, model, batch, context): ...
        def evaluate(self, model, batches): ...

    recipe = Recipe.read({"criterion": "mean_squared_error"})
    recipe.check(Values())
    with pytest.raises(UsageError, match=r"of the task Echo are classes\. Criteria for these: cross_entropy"):
        recipe.check(Echo())


def test_a_cpu_computes_in_float32_unless_told_otherwise():
    assert Recipe().dtype(torch.device("cpu")) is torch.float32
    assert Recipe.read({"precision": "bfloat16"}).dtype(torch.device("cpu")) is torch.bfloat16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lerning_rate": 1}, r"recipe: there is no 'lerning_rate'. Did you mean 'learning_rate'\?"),
        ({"lr": 0.1}, r"recipe: there is no 'lr'. Did you mean 'learning_rate'\?"),
        ({"wd": 0.1}, r"Did you mean 'weight_decay'\?"),
        ({"beta": 0.1}, r"Did you mean 'betas'\?"),
        ({"grad_clip": 1}, r"Did you mean 'clip'\?"),
        ({"batch_size": 8}, r"there is no 'batch_size'. Batch is an option of the task"),
        ({"learning_rate": 0}, "'adamw', option 'learning_rate': must be greater than 0, but got 0"),
        ({"learning_rate": "3e-3"}, "option 'learning_rate': must be a valid number, but got '3e-3'"),
        ({"learning_rate": float("nan")}, "option 'learning_rate': must be a finite number, but got nan"),
        ({"warmup": 2.5}, "'cosine', option 'warmup': must be a fraction below 1 or a whole number"),
        ({"warmup": -1}, "option 'warmup': must be greater than or equal to 0, but got -1"),
        ({"floor": 2}, "option 'floor': must be less than or equal to 1, but got 2"),
        ({"betas": 0.9}, "option 'betas': must be a list, but got 0.9"),
        ({"betas": [0.9, 1.0]}, "option 'betas.1': must be less than 1, but got 1.0"),
        ({"clip": True}, "option 'clip': must be a valid number, but got True"),
        ({"precision": "float23"}, r"option 'precision': must be .* Did you mean 'float32'\?"),
        ({"optimiser": "adam"}, r"No optimiser is called 'adam'. Did you mean 'adamw'\?"),
        (
            {"optimiser": {"sgd": {"momentum": 2}}},
            "optimiser 'sgd', option 'momentum': must be less than or equal to 1, but got 2",
        ),
        ({"optimiser": "sgd", "betas": [0.9, 0.99]}, "optimiser 'sgd' has no option 'betas'"),
        ({"schedule": "constant", "floor": 0.1}, "schedule 'constant' has no option 'floor'"),
        ({"weight_decay": 0, "optimiser": {"adamw": {"weight_decay": 0}}}, "'weight_decay' is written twice"),
        ({"schedule": ["cosine"]}, "recipe: schedule must be a name, or a name with its options"),
        ({"criterion": "cross_entrophy"}, r"No criterion is called .* Did you mean 'cross_entropy'\?"),
    ],
)
def test_rejects_what_cannot_be_with_its_name(options, message):
    with pytest.raises(UsageError, match=message):
        Recipe.read(options)


def test_parts_are_named_with_their_options_or_alone():
    recipe = Recipe.read({"optimiser": {"sgd": {"momentum": 0.5}}, "learning_rate": 2, "schedule": {"linear": None}})
    assert (recipe.optimiser.name, recipe.optimiser.options) == ("sgd", {"momentum": 0.5, "learning_rate": 2})
    assert recipe.rate(2.0, 10, 10) == 0.0
    assert Recipe.read({}) == Recipe()


def test_all_mistakes_of_a_recipe_are_told_together():
    with pytest.raises(UsageError) as caught:
        Recipe.read({"lr": 1, "clip": -1, "precision": "float23", "optimiser": {"adamv": {}}, "floor": 7})
    said = str(caught.value)
    for hint in ("'learning_rate'?", "'clip'", "'float32'?", "'adamw'?", "'floor'"):
        assert hint in said
