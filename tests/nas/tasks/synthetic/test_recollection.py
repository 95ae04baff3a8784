"""The tasks of recollection ask for what stood before, score nothing else, and are the same every time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from nas import tasks
from nas.errors import UsageError
from nas.tasks.fields import fitted
from nas.tasks.synthetic.recollection import Recollection
from nas.training import standalone
from searchspace import zoo
from searchspace.contract import Context

NAMES = ("copy", "associative_recall", "long_copy")


def load(name: str, **options) -> Recollection:
    task = tasks.load({name: options})
    assert isinstance(task, Recollection)
    return task


class Knows(nn.Module):
    """A model that predicts as `rule` says: from the symbols read so far, [B, t], the next one, [B]."""

    def __init__(self, vocabulary: int, rule: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.sure, self.vocabulary, self.rule = nn.Parameter(torch.tensor(20.0)), vocabulary, rule

    def forward(self, tokens: Tensor, context: Context) -> Tensor:
        following = [self.rule(tokens[:, : time + 1]) for time in range(tokens.shape[1])]
        return self.sure * nn.functional.one_hot(torch.stack(following, dim=1), self.vocabulary)


def as_long_ago(distance: int) -> Callable[[Tensor], Tensor]:
    """What stood `distance` positions before the next one."""
    return lambda read: read[:, max(0, read.shape[1] - distance)]


def after_the_same(read: Tensor) -> Tensor:
    """What followed the last symbol where it stood before."""
    rows = read.tolist()
    return torch.tensor([next((b for a, b in pairwise(row) if a == row[-1]), row[0]) for row in rows])


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_split_seed_and_number(name):
    task = load(name)
    first = task.draw("train", 1, 5)
    assert first.equal(load(name).draw("train", 1, 5))
    others = task.draw("train", 1, 6), task.draw("train", 2, 5), task.draw("test", 1, 5), task.draw("validation", 1, 5)
    assert not any(first.equal(other) for other in others)
    assert all(a.equal(b) for a, b in zip(task.held_out("test"), task.held_out("test"), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_has_the_shape_that_is_announced_and_symbols_of_the_vocabulary(name):
    task = load(name, batch=5)
    tokens = task.draw("train", 0, 0)
    assert tokens.shape == (5, task.length + 1)
    assert task.shape.rows == 5 * task.length
    vocabulary = task.requires()["vocabulary"]
    assert tokens.dtype == torch.int64
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary
    seen = torch.cat([task.draw("train", 0, index) for index in range(20)]).unique()
    assert seen.tolist() == list(range(vocabulary)), "the vocabulary has no more than the task uses"


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("copy", {"length": 10, "symbols": 3}, as_long_ago(6)),
        ("associative_recall", {"pairs": 5, "symbols": 5}, after_the_same),
        ("long_copy", {"remembered": 3, "gap": 7}, as_long_ago(10)),
        ("long_copy", {"remembered": 1, "gap": 1}, as_long_ago(2)),
    ],
)
def test_one_who_knows_the_rule_makes_no_error(name, options, rule):
    task = load(name, **options)
    model = Knows(task.vocabulary.size, rule)
    with torch.inference_mode():
        metrics = task.metrics(model, task.held_out("validation"))
    assert metrics["error"] == 0
    assert metrics["loss"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_only_answers_are_scored(name):
    task = load(name, batch=3)
    batch = task.draw("train", 0, 0)
    given: list[Tensor] = []

    class Uniform(nn.Module):
        def forward(self, tokens: Tensor, context: Context) -> Tensor:
            given.append(torch.zeros(*tokens.shape, task.vocabulary.size, requires_grad=True))
            assert tokens.equal(batch[:, :-1])
            return given[-1]

    loss = task.loss(Uniform(), batch, Context())
    assert loss.item() == pytest.approx(math.log(task.vocabulary.size), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, given)
    before = [place - 1 for place in task.asked]
    assert gradient.abs().sum(dim=(0, 2)).nonzero().flatten().tolist() == before


def test_a_copy_is_the_same_word_behind_a_separator():
    tokens = load("copy", length=12, symbols=4).draw("train", 0, 0)
    assert (tokens[:, 6] == 4).all()
    assert tokens[:, 7:].equal(tokens[:, :6])
    assert int(tokens[:, :6].max()) == 3


def test_no_key_has_two_values_in_a_sequence():
    tokens = load("associative_recall", pairs=6, symbols=9).draw("train", 0, 0)
    for row in tokens.tolist():
        pairs = dict(zip(row[:12:2], row[1:12:2], strict=True))
        assert len(pairs) == 6
        assert all(key < 9 <= value for key, value in pairs.items())
        assert all(pairs[key] == value for key, value in zip(row[12::2], row[13::2], strict=True))


def test_a_joined_pair_is_one_symbol_and_asked_for_by_its_key():
    task = load("associative_recall", pairs=3, symbols=4, joined=True)
    assert task.vocabulary.size == 4 + 4 + 16
    for row in task.draw("train", 0, 0).tolist():
        told = {(pair - 8) // 4: (pair - 8) % 4 for pair in row[:3]}
        assert len(told) == 3
        assert dict(zip(row[3::2], row[4::2], strict=True)) == {key: 4 + value for key, value in told.items()}


def test_nothing_but_fillers_and_the_one_that_asks_stand_in_a_gap():
    tokens = load("long_copy", remembered=2, gap=5, symbols=3).draw("train", 0, 0)
    assert (tokens[:, 2:7] == torch.tensor([3, 3, 3, 3, 4])).all()
    assert tokens[:, 7:].equal(tokens[:, :2])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"copy": {"length": 7}}, "length must be even"),
        ({"copy": {"symbols": 1}}, "option 'symbols': must be greater than or equal to 2, but got 1"),
        ({"associative_recall": {"pairs": 9, "symbols": 8}}, "symbols must be at least pairs, 9"),
        ({"associative_recall": {"pairs": 0}}, "option 'pairs': must be greater than or equal to 1, but got 0"),
        ({"long_copy": {"gap": 0}}, "option 'gap': must be greater than or equal to 1, but got 0"),
        ({"long_copy": {"remembered": 1.5}}, "option 'remembered': must be a valid integer, but got 1.5"),
        ({"long_copy": {"batch": 0}}, "option 'batch': must be greater than or equal to 1, but got 0"),
    ],
)
def test_wrong_options_are_refused(spec, message):
    with pytest.raises(UsageError, match=message):
        tasks.load(spec)


def test_a_decoder_of_the_zoo_learns_a_short_copy():
    spec = {"copy": {"length": 4, "symbols": 2, "batch": 16}}
    model = fitted(zoo.load("transformer_decoder", "tiny"), tasks.load(spec))
    outcome = standalone.train(model.text(), spec, steps=60, threads=1)
    assert outcome.failure is None
    assert outcome.metrics["error"] < 0.1
