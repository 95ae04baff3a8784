"""A task whose declared shape contradicts its batches is rejected before anything is counted with it."""

from __future__ import annotations

import pytest

from nas import tasks
from nas.errors import UsageError
from nas.tasks.shapes import check_drawn

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
    task = tasks.load("own.py", OWN.replace(old, new))
    if message is None:
        check_drawn(task)
    else:
        with pytest.raises(UsageError, match=message):
            check_drawn(task)


def test_source_and_target_have_lengths_of_their_own():
    source = OWN.replace('model(batch["tokens"], ', 'model(batch["tokens"], batch["tokens"][:, :5], ')
    with pytest.raises(UsageError, match="says target_length: 9, but it draws sequences of 5"):
        check_drawn(tasks.load("own.py", source.replace("= 4", "= 4\n    source_length, target_length = 12, 9")))
    check_drawn(tasks.load("own.py", source.replace("= 4", "= 4\n    source_length, target_length = 12, 5")))


def test_an_error_in_draw_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        check_drawn(tasks.load("own.py", OWN.replace("return {", "return 1 / 0 or {")))


def test_costs_are_counted_for_source_and_target():
    task = tasks.load("own.py", OWN.replace("batch = 4", "batch, source_length, target_length = 4, 9, 5"))
    assert (task.shape.batch, task.shape.length, task.shape.memory) == (4, 5, 9)
    assert tasks.load({"reversal": {"length": 24}}).shape.memory == 24
