"""An interrupted unit goes on where it stopped, and gives what an uninterrupted one gives."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from nas.training import checkpoints, loop, partial
from nas.training.unit import run
from nas.work import Outcome, Work

ARCHITECTURE = """
kind: decoder
width: 16
vocabulary: 256
body:
  residual: {norm: rms_norm, of: {feed_forward: {expand: 2, dropout: 0.1}}}
"""
COUNTING = """
from nas.tasks import Task
import torch
from torch.nn import functional as F


class Counting(Task):
    batch, length, evaluation_batches = 2, 8, 2

    def requires(self):
        return {"vocabulary": 256}

    def draw(self, split, seed, index):
        return torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(seed + index))

    def loss(self, model, batch, context):
        return F.cross_entropy(model(batch[:, :-1], context).flatten(0, 1), batch[:, 1:].flatten())
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(loop, "REPORT_SECONDS", 0.0)
    return Work(
        study="s",
        trial=1,
        rung=0,
        architecture=ARCHITECTURE,
        task={"own.py": {}},
        task_source=COUNTING,
        recipe={},
        steps=6,
        horizon=6,
        seed=3,
        checkpoint=str(tmp_path / "checkpoints"),
    )


class Interrupter:
    """Progress that interrupts at the first report, and remembers the steps it heard of."""

    def __init__(self, interrupts: bool) -> None:
        self.interrupts, self.steps = interrupts, []

    def __call__(self, progress) -> None:
        self.steps.append(progress.step)
        if self.interrupts:
            raise KeyboardInterrupt


def interrupted(work: Work) -> int:
    """Run `work` until the first report -> the step at which it stopped."""
    stopper = Interrupter(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        run(work, stopper)
    assert 0 < stopper.steps[0] < work.steps
    return stopper.steps[0]


def test_an_interrupted_unit_goes_on_where_it_stopped_and_ends_as_if_nothing_had_happened(work: Work):
    stopped = interrupted(work)
    listener = Interrupter(interrupts=False)
    resumed = run(work, listener)
    assert min(listener.steps) > stopped
    whole = run(dataclasses.replace(work, checkpoint=work.checkpoint + "-whole"))
    assert _result(resumed) == _result(whole)
    one, other = checkpoints.weights(resumed.checkpoint), checkpoints.weights(whole.checkpoint)
    assert all(torch.equal(one[name], other[name]) for name in one.keys() | other.keys())


def test_an_interrupt_in_the_middle_of_a_step_leaves_the_earlier_state(work: Work):
    """The weights are changed already, and the step would be done again."""
    interrupted(work)
    before, steps = partial.find(work), []

    def in_the_middle(*_: object) -> None:
        steps.append(1)
        if len(steps) == 2:
            raise KeyboardInterrupt

    hook = register_optimizer_step_post_hook(in_the_middle)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(work)
    finally:
        hook.remove()
    assert before is not None and partial.find(work) == before


def test_an_interrupt_passes_on_a_full_disk_and_keeps_the_earlier_state(work: Work, monkeypatch: pytest.MonkeyPatch):
    stopped = interrupted(work)
    before = partial.find(work)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    later = Interrupter(interrupts=True)
    with pytest.raises(KeyboardInterrupt):  # not a failure of the trial
        run(work, later)
    assert later.steps[0] > stopped
    assert partial.find(work) == before


def test_a_unit_that_has_ended_leaves_only_its_checkpoint(work: Work):
    interrupted(work)
    outcome = run(work)
    assert [path.name for path in Path(work.checkpoint).iterdir()] == [Path(outcome.checkpoint.uri).name]


@pytest.mark.parametrize("changes", [{"seed": 4}, {"study": "another"}, {"steps": 7}, {"recipe": {"clip": 2.0}}])
def test_another_unit_does_not_take_it_up(work: Work, changes: dict):
    interrupted(work)
    assert partial.find(work) is not None
    assert partial.find(dataclasses.replace(work, **changes)) is None


def test_a_damaged_state_is_passed_over(work: Work):
    interrupted(work)
    (path,) = Path(work.checkpoint).iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    assert partial.find(work) is None
    assert run(work).failure is None


def test_where_it_runs_does_not_matter(work: Work):
    interrupted(work)
    assert partial.find(dataclasses.replace(work, threads=2, seconds=60.0)) is not None


def _result(outcome: Outcome) -> dict:
    return {name: value for name, value in outcome.metrics.items() if name != "run/tokens_per_second"}
