"""Tasks are found by name, and a user's own from the text of its file."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from nas import tasks
from nas.errors import UsageError
from searchspace.tree import Block

OWN = """
from dataclasses import dataclass
from pathlib import Path

import torch

from nas.tasks import Task


@dataclass
class Settings:
    vocabulary: int = 4


class Parity(Task):
    def __init__(self, length: int = 8, vocabulary: int = 4):
        self.length, self.settings = length, Settings(vocabulary)

    def requires(self):
        return {"kind": "decoder", "vocabulary": self.settings.vocabulary}

    def draw(self, split, seed, index):
        return torch.full((2, self.length), index)

    def loss(self, model, batch, context):
        raise RuntimeError("the loss is not written yet")
"""


def test_finds_the_tasks_that_come_with_the_product():
    assert {"digits", "language_model"} <= set(tasks.names())


def test_loads_a_task_from_its_text_where_there_is_no_file():
    task = tasks.load({"elsewhere/parity.py": {"length": 3}}, OWN)
    assert next(task.batches("train", 0, start=7)).tolist() == [[7] * 3] * 2
    assert len(list(task.held_out("validation"))) == task.evaluation_batches
    assert task.shape.rows == task.batch * 3


def test_ships_a_file_as_text_with_an_absolute_path(tmp_path):
    (tmp_path / "parity.py").write_text(OWN)
    shipped, source = tasks.ship({"parity.py": {"length": 5}}, tmp_path)
    assert source == OWN
    assert shipped == {str(tmp_path / "parity.py"): {"length": 5}}
    (tmp_path / "parity.py").unlink()
    assert tasks.load(shipped, source).length == 5


def test_a_traceback_quotes_the_text_that_was_shipped():
    task = tasks.load("elsewhere/quoted.py", OWN)
    with pytest.raises(RuntimeError) as caught:
        task.loss(None, None, None)
    lines = traceback.format_exception(caught.value)
    assert any("elsewhere/quoted.py" in line and 'raise RuntimeError("the loss' in line for line in lines)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("langage_model", r"No task is called 'langage_model'. Did you mean 'language_model'\?"),
        ({"parity.py": {"lenth": 3}}, r"no option 'lenth'. Did you mean 'length'\?"),
        ({"digits": {}, "language_model": {}}, "A task is a name"),
        ({"digits": [1]}, "A task is a name"),
        (3, "A task is a name"),
    ],
)
def test_rejects_what_is_no_task(spec, message):
    with pytest.raises(UsageError, match=message):
        tasks.load(spec, OWN)


def test_options_of_an_own_task_are_checked_by_their_types():
    with pytest.raises(UsageError, match=r"task 'parity.py', option 'length': must be a valid integer"):
        tasks.load({"parity.py": {"length": "many"}}, OWN)
    assert tasks.load({"parity.py": {"length": "5"}}, OWN.replace("length: int", "length: Unknown")).length == "5"


def test_a_task_may_define_outputs_in_place_of_a_loss():
    source = OWN.replace("def loss(self, model, batch, context):", "def outputs(self, model, batch, context):")
    task = tasks.load("parity.py", source)
    with pytest.raises(RuntimeError, match="not written yet"):
        task.loss(None, None, None)


def test_a_metric_has_a_name_without_a_slash_and_a_direction():
    assert tasks.Metric("accuracy", "maximize", "fraction").direction == "maximize"
    with pytest.raises(ValueError, match="must not have a slash, but got 'top/1'"):
        tasks.Metric("top/1")
    for name in ("x=1", " x", "  "):
        with pytest.raises(ValueError, match="must neither hold `=` nor begin or end with a space"):
            tasks.Metric(name)
    with pytest.raises(ValueError, match="must be minimize or maximize, but got 'up'"):
        tasks.Metric("loss", "up")


def test_says_what_a_file_without_a_whole_task_lacks():
    with pytest.raises(UsageError, match=r"must define one complete subclass .* Half lacks loss\."):
        tasks.load("half.py", OWN.replace("def loss", "def lost").replace("Parity", "Half"))
    with pytest.raises(UsageError, match="has: none"):
        tasks.load("empty.py", "")


def test_says_which_file_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"missing\.py cannot be read: .*No such file"):
        tasks.ship(str(Path("missing.py")), tmp_path)


def test_names_everything_in_an_architecture_that_does_not_fit():
    task = tasks.load("parity.py", OWN)
    tasks.check(task, Block("decoder", {"vocabulary": 4, "width": 8}))
    with pytest.raises(ValueError, match=r"needs kind: decoder, .* kind: encoder; vocabulary: 4, .* no vocabulary"):
        tasks.check(task, Block("encoder", {"features": 4}))
