"""A task whose declared shape contradicts its batches fails at its first training step."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from nas import tasks
from nas.errors import UsageError
from nas.tasks.shapes import check_first
from searchspace.contract import Context

OWN = """
import torch
from torch.nn import functional as F

from nas.tasks import Task


class Own(Task):
    batch = 4
    def draw(self, split, seed, index):
        return {"tokens": torch.zeros(4, 12, dtype=torch.int64)}

    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch["tokens"], context).flatten(0, 1), batch["tokens"].flatten())
"""


class Model(torch.nn.Module):
    """Its logits have the shape of its first input: 3 symbols."""

    def forward(self, *inputs):
        tokens = inputs[0]
        return torch.zeros(*tokens.shape, 3)

    def logits(self, batch):
        return self.forward(batch["tokens"])


def check(source, message):
    """Compute a loss of the task in `source`, which raises `message`."""
    task, model = tasks.load("own.py", source), Model()
    check_first(task, model)
    with nullcontext() if message is None else pytest.raises(UsageError, match=message):
        task.loss(model, task.draw("train", 0, 0), Context())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch = 4", "batch = 4", r"The task Own says length: 128, but it draws sequences of 12 positions, .* to 12"),
        ("batch = 4", "batch, length = 5, 12", r"says batch: 5, but it draws batches of 4 sequences"),
        ("batch = 4", "batch, source_length, target_length = 4, 7, 12", None),  # one input has no source
        ("batch = 4", "batch, length = 4, 13", None),  # all but the last position are read
        ("batch = 4", "batch, length = 4, 12", None),
        ("model(batch", "model(batch['tokens'], batch", r"says length: 128"),
        ('F.cross_entropy(model(batch["tokens"], context)', "F.cross_entropy(model.logits(batch)", None),
    ],
)
def test_the_declared_shape_is_compared_with_what_a_model_is_given(old, new, message):
    assert old in OWN
    check(OWN.replace(old, new), message)


def test_source_and_target_have_lengths_of_their_own():
    source = OWN.replace('model(batch["tokens"], ', 'model(batch["tokens"], batch["tokens"][:, :5], ')
    lengths = "= 4\n    source_length, target_length = 12, "
    check(source.replace("= 4", lengths + "9"), "says target_length: 9, but it draws sequences of 5")
    check(source.replace("= 4", lengths + "5"), None)


def test_costs_are_counted_for_source_and_target():
    task = tasks.load("own.py", OWN.replace("batch = 4", "batch, source_length, target_length = 4, 9, 5"))
    assert (task.shape.batch, task.shape.length, task.shape.memory) == (4, 5, 9)
    assert tasks.load({"reversal": {"length": 24}}).shape.memory == 24
