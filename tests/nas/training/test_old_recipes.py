"""The flat keys of a recipe mean the same numbers as before: a training is bitwise that of the formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nas import tasks
from nas.training.loop import Deadline, Training
from nas.training.recipe import Recipe
from nas.training.standalone import train
from searchspace.contract import Context

ARCHITECTURE = """
kind: decoder
width: 16
vocabulary: 17
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}
  - residual: {norm: rms_norm, of: {feed_forward: {expand: 2}}}
"""
TASK = {"copy": {"length": 8, "batch": 4}}
CPU = torch.device("cpu")
FLAT = {"learning_rate": 0.01, "warmup": 3, "floor": 0.2, "weight_decay": 0.3, "betas": [0.8, 0.9], "clip": 0.5}
DEFAULTS = {"learning_rate": 3e-3, "warmup": 0.1, "floor": 0.1, "weight_decay": 0.1, "betas": [0.9, 0.95], "clip": 1.0}
RECORDED = {  # curve of training losses before recipes named their parts, on AMD EPYC
    "defaults": (2.8351094722747803, 2.849764823913574, 2.798736572265625, 2.8057992458343506),
    "written": (2.8351094722747803, 2.8712477684020996, 2.778369903564453, 2.7545998096466064),
}


@pytest.mark.parametrize(("name", "recipe"), [("defaults", {}), ("written", FLAT)])
def test_a_training_gives_the_losses_that_were_recorded(name, recipe):
    outcome = train(ARCHITECTURE, TASK, recipe, steps=12, threads=1)
    assert outcome.failure is None
    found = dict(outcome.curve)
    assert [found[step] for step in (1, 4, 8, 12)] == pytest.approx(RECORDED[name], rel=1e-5)


def model() -> nn.Module:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm, self.out = nn.Embedding(17, 8), nn.LayerNorm(8), nn.Linear(8, 17)

        def forward(self, tokens, context):
            return self.out(self.norm(self.table(tokens)))

    torch.default_generator.manual_seed(0)
    return Small()


def reference(recipe: dict, steps: int) -> list[torch.Tensor]:
    """The training loop as it was: AdamW in two groups, a linear warm-up, a cosine, and a clipped gradient."""
    trained, task = model(), tasks.load(TASK)
    others = [trained.table.weight, trained.norm.weight, trained.norm.bias, trained.out.bias]
    groups = [{"params": [trained.out.weight], "weight_decay": recipe["weight_decay"]},
              {"params": others, "weight_decay": 0.0}]  # fmt: skip
    optimiser = torch.optim.AdamW(groups, lr=recipe["learning_rate"], betas=tuple(recipe["betas"]), fused=True)
    warmup = recipe["warmup"] if recipe["warmup"] >= 1 else int(recipe["warmup"] * steps)
    for step in range(steps):
        way = min(1.0, (step - warmup + 1) / max(1.0, steps - warmup))
        cosine = recipe["floor"] + (1 - recipe["floor"]) * 0.5 * (1 + math.cos(math.pi * way))
        rising = recipe["learning_rate"] * (step + 1) / max(1, warmup)
        for group in optimiser.param_groups:
            group["lr"] = rising if step < warmup else recipe["learning_rate"] * cosine
        places = torch.tensor(task.asked)
        batch = task.draw("train", 5, step)
        logits = trained(batch[:, :-1], Context())[:, places - 1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, places].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.parameters(), recipe["clip"])
        optimiser.step()
    return list(trained.parameters())


@pytest.mark.parametrize("recipe", [{}, FLAT], ids=["defaults", "written"])
def test_weights_are_bitwise_those_of_the_formulas(recipe):
    training = Training(model(), tasks.load(TASK), Recipe.read(recipe), 20, 5, CPU)
    training.run(20, Deadline(None))
    assert all(map(torch.equal, training.model.parameters(), reference({**DEFAULTS, **recipe}, 20)))
