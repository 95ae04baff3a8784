"""Every optimiser learns, keeps its state in a checkpoint, and decays matrices only."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nas import tasks
from nas.errors import UsageError
from nas.training import checkpoints
from nas.training.loop import Deadline, Training
from nas.training.optimisers import make, optimisers
from nas.training.optimisers.lion import Lion
from nas.training.recipe import Recipe

CPU = torch.device("cpu")


class Small(nn.Module):
    """A table, a norm, a matrix and the kernel of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        torch.default_generator.manual_seed(0)
        self.table, self.norm, self.out = nn.Embedding(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)
        self.mix = nn.Conv1d(8, 8, 3)

    def forward(self, tokens, context):
        x = self.norm(self.table(tokens))  # [B, T, C]
        x = x + self.mix(nn.functional.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return self.out(x)


def training(name: str) -> Training:
    task = tasks.load({"copy": {"length": 4, "symbols": 3, "batch": 8}})
    return Training(Small(), task, Recipe.read({"optimiser": name, "schedule": "constant"}), 60, 0, CPU)


@pytest.mark.parametrize("name", optimisers())
def test_an_optimiser_learns_and_goes_on_bitwise_from_a_checkpoint(name, tmp_path):
    whole, part = training(name), training(name)
    curve = whole.run(60, Deadline(None))
    assert all(math.isfinite(loss) for _, loss in curve)
    assert curve[-1][1] < 0.95 * curve[0][1]
    part.run(7, Deadline(None))
    rest = training(name)
    rest.restore(checkpoints.read(checkpoints.write(part.state(), str(tmp_path), "part")))
    rest.run(60, Deadline(None))
    assert all(map(torch.equal, rest.model.parameters(), whole.model.parameters()))


@pytest.mark.parametrize("name", optimisers())
def test_only_matrices_decay_and_every_parameter_is_in_one_group(name):
    model = Small()
    groups = make(name, model, {"weight_decay": 0.5}).param_groups
    decayed = {id(each) for group in groups if group["weight_decay"] for each in group["params"]}
    assert decayed == {id(model.out.weight), id(model.mix.weight)}
    assert sorted(id(each) for group in groups for each in group["params"]) == sorted(map(id, model.parameters()))


def test_lion_takes_steps_of_the_sign():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = Lion([{"params": [weight], "weight_decay": 0.5}], lr=0.1, betas=(0.9, 0.5))
    weight.grad = torch.tensor([3.0, -1.0])
    optimiser.step()
    assert weight.tolist() == pytest.approx([0.95 - 0.1, -1.9 + 0.1])
    weight.grad = torch.tensor([-30.0, -1.0])  # 0.9 * 1.5 - 0.1 * 30 < 0
    optimiser.step()
    assert weight.tolist() == pytest.approx([0.85 * 0.95 + 0.1, -1.8 * 0.95 + 0.1])


def test_a_state_of_another_optimiser_does_not_fit():
    state = make("adamw", Small()).state_dict()
    with pytest.raises(KeyError):
        make("muon", Small()).load_state_dict(state)


def test_a_new_learning_rate_reaches_every_part():
    optimiser = make("muon", Small())
    for group in optimiser.param_groups:
        group["lr"] = 0.123
    assert {group["lr"] for part in optimiser.parts for group in part.param_groups} == {0.123}


def test_options_that_exclude_each_other_are_rejected():
    with pytest.raises(UsageError, match="'sgd': nesterov needs a momentum above 0"):
        make("sgd", Small(), {"momentum": 0, "nesterov": True})
