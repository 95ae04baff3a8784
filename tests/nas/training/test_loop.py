"""The loop learns, goes on exactly where it stopped, and notices what cannot go on."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks.contract import Task
from nas.training import checkpoints
from nas.training.loop import Deadline, NotFinite, TooSlow, Training, WrongReturn, place
from nas.training.recipe import Recipe
from nas.work import Progress
from searchspace.contract import Context
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

CPU = torch.device("cpu")


class Successor(Task):
    """Predict (2 x + 1) modulo 11."""

    batch, length = 4, 6

    def draw(self, split, seed, index):
        generator = torch.Generator().manual_seed(seed * 1_000 + index)
        return torch.randint(0, 11, (self.batch, self.length), generator=generator)

    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch, context).flatten(0, 1).float(), (2 * batch + 1).flatten() % 11)


class Tiny(nn.Module):
    """A model with dropout and an auxiliary loss, both of which a continued run must repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(12, 11)

    def forward(self, tokens: Tensor, context: Context) -> Tensor:
        x = self.drop(self.table(tokens))
        context.add_loss("square", 0.01 * x.square().mean())
        return self.out(x)


def training(horizon: int = 60, seed: int = 0, task: Task | None = None, **recipe) -> Training:
    torch.default_generator.manual_seed(seed)
    return Training(Tiny(), task or Successor(), Recipe.read({"learning_rate": 0.03, **recipe}), horizon, seed, CPU)


def same(first: Training, second: Training) -> bool:
    """Whether weights and optimiser state agree to the bit."""
    weights = zip(first.model.parameters(), second.model.parameters(), strict=True)
    moments = zip(first.optimiser.state.values(), second.optimiser.state.values(), strict=True)
    return all(torch.equal(a, b) for a, b in weights) and all(
        torch.equal(a[name], b[name]) for a, b in moments for name in a
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_the_loss_falls(precision):
    curve = training(precision=precision).run(60, Deadline(None))
    assert curve[-1][1] < 0.5 * curve[0][1]


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("stops", [(1,), (7, 8, 19)])
def test_stopping_and_going_on_gives_the_same_weights_to_the_bit(precision, stops, tmp_path):
    whole = training(precision=precision)
    whole.run(25, Deadline(None))
    part = training(precision=precision)
    for stop in stops:
        part.run(stop, Deadline(None))
        written = checkpoints.write(part.state(), str(tmp_path), "part")
        torch.rand(3)  # what else happens in the process between two units
        part = training(precision=precision, seed=stop)
        part.seed = 0
        part.restore(checkpoints.read(written))
    part.run(25, Deadline(None))
    assert same(whole, part)


class Continued(Task):
    """Say at every position what the first symbol was, four segments of two positions ago: a state must carry it."""

    batch, length, segments = 16, 2, 4

    def draw(self, split, seed, index):
        sequence, segment = divmod(index, self.segments)
        told = torch.randint(0, 4, (self.batch,), generator=torch.Generator().manual_seed(seed * 1000 + sequence))
        inputs = torch.zeros(self.batch, self.length, dtype=torch.int64)
        if segment == 0:
            inputs[:, 0] = told
        return inputs, told

    def requires(self):
        return {"kind": "decoder", "vocabulary": 4}

    def loss(self, model, batch, context):
        inputs, told = batch
        logits = model(inputs, context)
        return F.cross_entropy(logits.flatten(0, 1), told[:, None].expand(-1, self.length).flatten())


def continued(seed: int = 0) -> Training:
    torch.manual_seed(0)
    model = Architecture.parse("{kind: decoder, width: 16, vocabulary: 4, body: [residual: {norm: rms_norm, of: gru}]}")
    recipe = Recipe.read({"learning_rate": 1e-2})
    return Training(build(model), Continued(), recipe, 400, seed, torch.device("cpu"))


def test_segments_of_a_sequence_are_trained_one_after_the_other_with_the_state_in_between():
    """One segment alone cannot know the answer: the loss would stay at log(4) in three of four steps."""
    run = continued()
    curve = run.run(400, Deadline(None))
    assert curve[-1][1] < 0.1
    assert run.streams.length == Continued.segments * Continued.length


def test_stopping_within_a_sequence_goes_on_with_its_state(tmp_path):
    whole, part, later = continued(), continued(), continued()
    whole.run(11, Deadline(None))
    part.run(6, Deadline(None))
    later.restore(checkpoints.read(checkpoints.write(part.state(), str(tmp_path), "part")))
    later.run(11, Deadline(None))
    assert same(whole, later)


def test_another_seed_gives_other_weights():
    first, second = training(), training()
    second.seed = 1
    first.run(3, Deadline(None))
    second.run(3, Deadline(None))
    assert not same(first, second)


def test_the_curve_is_short_and_ends_at_the_last_step():
    run = training(horizon=220)
    curve = run.run(120, Deadline(None))
    assert len(curve) <= 50 and curve[-1][0] == 120 == run.step
    curve = run.run(123, Deadline(None))
    assert [step for step, _ in curve] == [121, 122, 123]
    assert run.run(123, Deadline(None)) == []


def test_progress_is_reported_at_the_end():
    heard: list[Progress] = []
    training().run(5, Deadline(None), heard.append)
    assert heard[-1].step == heard[-1].steps == 5
    assert heard[-1].tokens_per_second > 0


def test_a_loss_that_is_not_a_number_stops_at_its_step():
    run = training()
    run.run(4, Deadline(None))
    with torch.no_grad():
        run.model.out.weight[0, 0] = float("nan")
    with pytest.raises(NotFinite, match="nan at step 5"):
        run.run(9, Deadline(None))


def test_the_limit_of_time_holds():
    with pytest.raises(TooSlow, match=r"limit of 1e-09 seconds was over at step 1 of 10"):
        training().run(10, Deadline(1e-9))


class Pair(NamedTuple):
    left: Tensor
    right: int


class Odd(Successor):
    """Its loss is whatever it was told."""

    def __init__(self, loss) -> None:
        self.odd = loss

    def loss(self, model, batch, context):
        return self.odd


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (1.5, "must return a tensor, but it returned float"),
        (torch.ones(3, requires_grad=True), r"a tensor with shape \[3\]"),
        (torch.ones(()), "a tensor with no gradient"),
    ],
)
def test_says_what_is_wrong_with_a_loss(loss, message):
    with pytest.raises(WrongReturn, match=message):
        training(task=Odd(loss)).run(1, Deadline(None))


def test_every_tensor_of_a_batch_is_placed():
    batch = {"pair": (torch.ones(2), [torch.zeros(1), "word"]), "number": 3}
    placed = place(batch, torch.device("meta"))
    assert placed["pair"][0].device.type == placed["pair"][1][0].device.type == "meta"
    assert placed["pair"][1][1] == "word" and placed["number"] == 3
    assert place(Pair(torch.ones(1), 2), torch.device("meta")).left.device.type == "meta"
