"""Scores of untrained models: the formulas of their papers on models so small that the answer is known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nas.config.checks import check_objective
from nas.objectives import make
from nas.objectives.probes import activation_distance, jacobian_covariance, short_race, zico
from nas.objectives.probes._passes import split
from nas.tasks.synthetic.associative_recall import AssociativeRecall
from nas.tasks.vision.digits import Digits
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

PROBES = ["gradient_norm", "snip", "synflow", "jacobian_covariance", "activation_distance", "zico"]
X = torch.tensor([[1.0, 2.0, 2.0]])


class Squares:
    """A task whose loss is the squared output."""

    def loss(self, model, batch, context):
        return model(batch).square().sum()


class Tokens:
    """A task that predicts the next token."""

    def loss(self, model, batch, context):
        logits = model(batch[:, :-1], context)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


@pytest.fixture
def line():
    torch.default_generator.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False))


@pytest.fixture
def model():
    torch.default_generator.manual_seed(0)
    text = "kind: decoder\nwidth: 16\nvocabulary: 11\nbody: [residual: {of: {attention: {heads: 2}}}, feed_forward]"
    return build(Architecture.parse(text))


def scored(name, model, batch, task=None):
    return make(name, Shape()).score(model, batch, task or Squares())


def test_snip_is_the_change_of_the_loss_without_each_weight(line):
    (weight,) = line.parameters()
    expected = (weight * 2 * line(X) * X).abs().sum().item()
    assert scored("snip", line, X) == pytest.approx(expected)


def test_synflow_is_the_flow_through_absolute_weights_which_come_back(line):
    (weight,) = line.parameters()
    before = weight.detach().clone()
    assert scored("synflow", line, X) == pytest.approx((before.abs() * X).sum().item())
    assert torch.equal(weight, before)


@given(st.floats(-0.99, 0.99))
def test_the_score_of_two_jacobians_follows_from_their_correlation(r):
    one, other = torch.tensor([1.0, -1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0, -1.0])
    found = jacobian_covariance.of_jacobians(torch.stack([one, r * one + math.sqrt(1 - r * r) * other]).double())
    k = jacobian_covariance.K
    assert found == pytest.approx(-sum(math.log(1 + s * r + k) + 1 / (1 + s * r + k) for s in (1, -1)), rel=1e-4)


def test_the_distance_of_activations_is_finite_even_if_two_examples_have_one_code():
    two = torch.tensor([[1.0, -1.0], [1.0, 1.0]])  # K = [[2, 1], [1, 2]] has the determinant 3
    assert activation_distance.of_activations([two]) == pytest.approx(math.log(3))
    layer = torch.tensor([[1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])  # eigenvalues of K: 0 and 3 -+ sqrt(3)
    assert activation_distance.of_activations([layer]) == pytest.approx(math.log(6))


def test_zico_adds_logarithms_over_layers_and_leaves_out_what_does_not_vary():
    layer = torch.tensor([[1.0, 5.0], [3.0, 5.0]])  # means 2 and 5, standard deviations 1 and 0
    assert zico.of_gradients([layer, 3 * layer, torch.ones(2, 4)]) == pytest.approx(2 * math.log(2))


@given(size=st.integers(2, 9), parts=st.integers(2, 12))
def test_a_split_batch_holds_every_example_once(size, parts):
    x = torch.arange(size)
    made = split((x, {"y": x[:, None], "kind": "text"}), parts)
    assert len(made) == min(size, parts)
    assert torch.cat([each[0] for each in made]).equal(x)
    assert torch.cat([each[1]["y"] for each in made]).equal(x[:, None])
    assert all(each[1]["kind"] == "text" and len(each[0]) == len(each[1]["y"]) for each in made)


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_is_finite_repeatable_and_leaves_the_model_as_it_was(name, model):
    before = [each.detach().clone() for each in model.parameters()]
    tokens = torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(0))
    found = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        found.append(scored(name, model, tokens, Tokens()))
    assert math.isfinite(found[0]) and found[0] == found[1]
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["jacobian_covariance", "zico"])
def test_one_example_is_not_enough(name, model):
    with pytest.raises(ValueError, match="two"):
        scored(name, model, torch.zeros(1, 5, dtype=torch.int64), Tokens())
    with pytest.raises(ValueError, match=f"{name} needs a batch of at least two examples, but the task has 1"):
        check_objective(make(name, Shape()), AssociativeRecall(batch=1), "associative_recall")
    check_objective(make(name, Shape()), AssociativeRecall(batch=2), "associative_recall")


@pytest.mark.parametrize("name", [each for each in PROBES if each != "jacobian_covariance"])
def test_a_model_that_overflows_has_no_finite_score(name, model):
    """So its trial fails; `jacobian_covariance` raises an error."""
    with torch.no_grad():
        next(model.parameters()).fill_(math.inf)
    batch = torch.randint(8, (4, 9), generator=torch.Generator().manual_seed(0))
    assert not math.isfinite(scored(name, model, batch, Tokens()))


def test_gradients_that_vanish_have_no_correlation(model):
    with pytest.raises(ValueError, match="does not vary over its inputs: gradients vanish or overflow"):
        jacobian_covariance.of_jacobians(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))


def test_a_model_without_linear_layers_is_scored_by_its_output():
    text = "kind: decoder\nwidth: 8\nvocabulary: 11\nbody: [lstm]"
    tokens = torch.randint(0, 11, (4, 9), generator=torch.Generator().manual_seed(0))
    assert math.isfinite(scored("activation_distance", build(Architecture.parse(text)), tokens, Tokens()))


def test_a_loss_that_does_not_call_the_model_cannot_be_seen(line):
    class Parts:
        def loss(self, model, batch, context):
            return model[0](batch).sum()

    with pytest.raises(ValueError, match="does not call the model"):
        scored("synflow", line, X, Parts())


def test_parameters_without_tables():
    tables = "kind: decoder\nwidth: 16\nvocabulary: 11\nposition: {learned: {length: 8}}\ntie_embeddings: false\n"
    architecture = Architecture.parse(f"{tables}body: [feed_forward]")
    found = make("non_embedding_parameters", Shape(length=8)).evaluate(architecture)
    model = build(architecture)
    rest = [value.numel() for name, value in model.named_parameters() if "embed" not in name and "logits" not in name]
    assert found == sum(rest) - 8 * 16 * any("position" in name for name, _ in model.named_parameters())


class Decoding(Tokens):
    """A task of a decoder."""

    def requires(self):
        return {"kind": "decoder", "vocabulary": 11}


@pytest.mark.parametrize("race", [short_race.recall, short_race.copying, short_race.compression])
def test_a_race_can_be_won(race):
    """What counts follows from what is before it, except one bit in compression."""
    symbols, counts = race(torch.Generator().manual_seed(0), 4, 20, 11)
    assert symbols.shape == counts.shape and symbols.min() >= 0 and symbols.max() < 11
    for row, counted in zip(symbols.tolist(), counts.tolist()):
        for place in [place for place, each in enumerate(counted) if each and place]:
            if race is short_race.recall:  # the value that followed the same key before
                first = row.index(row[place - 1])
                assert row[first + 1] == row[place]
            elif race is short_race.copying:
                assert row[place] == row[place - (len(row) + 1) // 2]


def test_a_short_race_leaves_the_model_as_it_was(model):
    before = {name: each.clone() for name, each in model.state_dict().items()}
    race = make({"short_race": {"steps": 3, "batch": 4}}, Shape())
    scores = []
    for _ in range(2):
        torch.default_generator.manual_seed(0)
        scores.append(race.score(model, None, Decoding()))
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert scores[0] == scores[1] and 0 < scores[0] < 2 * math.log(11)
    longer = make({"short_race": {"steps": 12, "batch": 4}}, Shape()).score(model, None, Decoding())
    assert longer < scores[0]
    with pytest.raises(ValueError, match="needs a decoder of symbols"):
        check_objective(make("short_race", Shape()), Digits(), "digits")
