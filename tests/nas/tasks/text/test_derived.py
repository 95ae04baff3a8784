"""The tasks made of text hide, reverse and disturb it as they say, the same way every time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nas import tasks
from nas.errors import UsageError
from nas.tasks.text.disturbed_text import CLASSES
from searchspace.contract import Context

NAMES = ("masked_language_model", "reversal", "disturbed_text")


@pytest.fixture
def prepared(tmp_path: Path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"The quick brown fox jumps over the lazy dog, again and again.\n" * 200)

    def prepare(name: str, **options) -> tasks.Task:
        task = tasks.load({name: {"data": str(path), "length": 24, "batch": 64, **options}})
        task.prepare(None)
        return task

    return prepare


class Uniform(nn.Module):
    """Finds every answer equally likely."""

    def __init__(self, answers: int, positions: bool) -> None:
        super().__init__()
        self.logits, self.positions = nn.Parameter(torch.zeros(answers)), positions

    def forward(self, *inputs: object) -> Tensor:
        tokens = inputs[0]
        assert isinstance(tokens, Tensor)
        return self.logits.expand(*tokens.shape[: 2 if self.positions else 1], -1)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_split_seed_and_number(prepared, name):
    task = prepared(name)
    first, again, other = task.draw("train", 1, 5), task.draw("train", 1, 5), task.draw("train", 1, 6)
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not first[0].equal(other[0])
    for once, twice in zip(task.held_out("test"), task.held_out("test"), strict=True):
        assert all(a.equal(b) for a, b in zip(once, twice, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_knows_nothing_loses_the_logarithm_of_the_answers(prepared, name):
    task = prepared(name)
    answers = len(CLASSES) if name == "disturbed_text" else task.symbols + 1
    model = Uniform(answers, positions=name != "disturbed_text")
    loss = task.loss(model, task.draw("train", 0, 0), Context())
    assert loss.item() == pytest.approx(math.log(answers), rel=1e-5)
    with torch.inference_mode():
        metrics = task.metrics(model, task.held_out("validation"))
    assert metrics["loss"] == pytest.approx(math.log(answers), rel=1e-5)
    assert 0 < metrics["error"] <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_errors_are_counted_for_the_documents_of_the_text(name, tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"Number {number} is {number * 7919} and {number * 104729}.\n" * 6)
    task = tasks.load({name: {"data": str(tmp_path / "*.txt"), "documents": "files", "length": 24, "batch": 5}})
    task.prepare(None)
    low, high = task.source.part("test")
    held = {path for path, start in zip(task.source.text.names, task.source.text.starts) if low <= start < high}
    answers = len(CLASSES) if name == "disturbed_text" else task.symbols + 1
    with torch.inference_mode():
        found = task.evaluate(Uniform(answers, positions=name != "disturbed_text"), task.held_out("test"))
    assert set(found.every[0].names) <= held and len(found.every[0].names) > len(held) / 2
    assert found.every[0].value == pytest.approx(found.metrics["error"])
    pieces = sum(len(text) for text, _ in task.source.pieces("test"))
    assert pieces == (high - low) // 24


def test_pieces_that_are_in_the_training_text_are_left_out(tmp_path):
    shared = "This line is in the training text and in the held-out text alike.\n" * 20
    for name, own in (("train", "abc"), ("validation", "def"), ("test", "ghi")):
        text = "".join(f"{own} {number * 7919}\n" for number in range(200))
        (tmp_path / name).write_text(text + shared)
    data = {name: str(tmp_path / name) for name in ("train", "validation", "test")}
    pieces = []
    for removed in (False, True):
        task = tasks.load({"reversal": {"data": data, "length": 24, "remove_overlap": removed}})
        task.prepare(None)
        pieces.append(sum(len(text) for text, _ in task.source.pieces("test")))
    assert pieces[0] - pieces[1] == pytest.approx(len(shared) / 24, abs=2)
    (tmp_path / "test").write_text(shared)
    with pytest.raises(UsageError, match="remove_overlap"):
        tasks.load({"reversal": {"data": data, "length": 24, "remove_overlap": True}}).prepare(None)


def test_the_chosen_positions_are_hidden_replaced_or_kept_in_their_shares(prepared):
    task = prepared("masked_language_model", batch=400)
    inputs, targets, chosen = task.draw("train", 0, 0)
    assert inputs[~chosen].equal(targets[~chosen])
    assert chosen.any(dim=1).all()
    assert chosen.double().mean().item() == pytest.approx(0.15, abs=0.05)
    hidden = (inputs[chosen] == task.symbols).double().mean().item()
    kept = (inputs[chosen] == targets[chosen]).double().mean().item()
    assert hidden == pytest.approx(0.8, abs=0.04)
    assert kept == pytest.approx(0.1, abs=0.04)


def test_the_target_of_a_reversal_is_its_source_backwards_and_the_decoder_sees_what_came_before(prepared):
    task = prepared("reversal")
    source, target = task.draw("train", 0, 0)
    assert target.equal(source.flip(1))
    seen = {}

    class Spy(Uniform):
        def forward(self, *inputs: object) -> Tensor:
            seen["source"], seen["target"] = inputs[:2]
            return super().forward(inputs[1])

    task.loss(Spy(task.symbols + 1, positions=True), (source, target), Context())
    assert seen["source"].equal(source)
    assert (seen["target"][:, 0] == task.symbols).all()
    assert seen["target"][:, 1:].equal(target[:, :-1])


def test_each_class_of_disturbed_text_is_what_its_name_says(prepared):
    task = prepared("disturbed_text")
    tokens, classes = task.draw("train", 0, 0)
    text = task.source.draw("train", 0, 0)[0]
    assert tokens[classes == 0].equal(text[classes == 0])
    assert tokens[classes == 1].equal(text[classes == 1] + 1)
    shuffled = classes == 2
    assert not tokens[shuffled].equal(text[shuffled])
    assert tokens[shuffled].sort(dim=1).values.equal(text[shuffled].sort(dim=1).values)
    assert set(classes.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("share", "message"),
    [(0, "must be greater than 0"), (1.5, "must be less than or equal to 1"), ("much", "must be a valid number")],
)
def test_a_wrong_share_is_refused(share, message):
    with pytest.raises(UsageError, match=f"option 'share': {message}, but got {share!r}"):
        tasks.load({"masked_language_model": {"share": share}})


@pytest.mark.parametrize("name", NAMES)
def test_paths_are_those_of_the_search_file(name, tmp_path):
    spec, _ = tasks.ship({name: {"data": "texts/*.txt"}}, tmp_path)
    assert spec[name]["data"] == [str(tmp_path / "texts/*.txt")]
