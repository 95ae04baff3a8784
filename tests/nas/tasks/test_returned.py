"""What a task without `reports` returns is found with one batch and a tiny model."""

from __future__ import annotations

import pytest
import torch

from nas import tasks
from nas.errors import UsageError
from nas.tasks.returned import returned

OWN = """
import torch

from nas.tasks import Documents, Evaluation, Task


class Own(Task):
    batch, length = 4, 12

    def requires(self):
        return {"kind": "decoder", "vocabulary": 5}

    def draw(self, split, seed, index):
        return torch.zeros(4, 12, dtype=torch.int64)

    def loss(self, model, batch, context):
        raise NotImplementedError

    def metrics(self, model, batches):
        (batch,) = batches
        assert not model.training and not torch.is_grad_enabled()
        return {"error": model(batch).argmax(-1).float().mean(), "seen": float(len(batch))}
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ("error", "seen")),
        ("def metrics(self, model, batches):", "def evaluate(self, model, batches):", None),  # of a dict
        ("return {", "return None and {", None),
        ('return {"error"', 'return {} and {"error"', ()),
        ("return {", "raise SystemExit or {", None),
        ("return {", "return model.block and {", None),
        ('"kind": "decoder", ', "", None),
        ('"vocabulary": 5', '"vocabulary": 10**9', None),
        ('"decoder", "vocabulary": 5', '"encoder", "vocabulary": 5, "classes": 3', ("error", "seen")),
        ('"decoder"', '"encoder_decoder"', None),  # which needs a source
        ("model(batch)", "model(batch, batch)", None),
    ],
)
def test_the_metrics_are_those_of_a_dry_evaluation_and_unknown_if_it_fails(old, new, found):
    assert old in OWN
    assert returned(tasks.load("own.py", OWN.replace(old, new))) == found


def test_a_model_of_two_sequences_is_tried_too():
    source = OWN.replace('"decoder"', '"encoder_decoder"').replace("model(batch)", "model(batch, batch)")
    assert returned(tasks.load("own.py", source)) == ("error", "seen")


@pytest.mark.parametrize("name", ["digits", "language_model", "reversal"])
def test_the_tasks_of_the_product_return_what_they_declare(name):
    task = tasks.load_prepared({name: {}}, None, None)
    assert set(returned(task)) >= {each.name for each in task.reports}


def test_a_name_of_the_runner_is_rejected():
    with pytest.raises(UsageError, match="The task Own: A metric of a task cannot be called 'test/error'"):
        returned(tasks.load("own.py", OWN.replace('"error"', '"test/error"')))


def test_random_numbers_of_the_process_are_not_used():
    before = torch.random.get_rng_state()
    returned(tasks.load("own.py", OWN))
    assert torch.equal(torch.random.get_rng_state(), before)
