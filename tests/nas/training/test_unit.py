"""A unit of work gives metrics and a checkpoint, or a typed failure; never an exception of its own."""

from __future__ import annotations

import dataclasses
import errno
import math
import re
from pathlib import Path

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from nas.errors import NasError, UsageError
from nas.training import checkpoints, unit
from nas.training.standalone import train
from nas.training.unit import run
from nas.work import Checkpoint, FailureKind, Outcome, Work

HALTING = """
kind: decoder
width: 16
vocabulary: 256
body:
  halting:
    times: 3
    of:
      residual: {norm: rms_norm, of: {feed_forward: {expand: 2, dropout: 0.1}}}
"""
ATTENTION = """
kind: decoder
width: 16
vocabulary: 256
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}
  - residual: {norm: rms_norm, of: {feed_forward: {expand: 2}}}
"""
IMAGES = """
kind: encoder
width: 16
features: 4
classes: 10
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2}}}
"""
OWN = """
from nas.tasks import Task
import torch


class Own(Task):
    batch, length, evaluation_batches = 2, 4, 2

    def requires(self):
        return {"vocabulary": 256}

    def draw(self, split, seed, index):
        return torch.zeros(self.batch, self.length, dtype=torch.int64)

    def loss(self, model, batch, context):
        return self.score(model(batch, context))

    def score(self, logits):
        return logits.square().mean()
"""


@pytest.fixture
def work(tmp_path: Path) -> Work:
    text = tmp_path / "text.txt"
    text.write_text("A house is built of stones, and a tale of words. " * 80)
    task = {"language_model": {"data": str(text), "length": 16, "batch": 4, "evaluation": 64}}
    return Work(
        study="s", trial=3, rung=1, architecture=ATTENTION, task=task, recipe={"learning_rate": 0.01}, steps=6,
        horizon=12, seed=5, checkpoint=str(tmp_path / "checkpoints"), cache=str(tmp_path / "cache"),
    )  # fmt: skip


def own(work: Work, source: str, **changes) -> Work:
    return dataclasses.replace(work, task={"far/own.py": {}}, task_source=source, **changes)


def lasting(outcome: Outcome) -> dict[str, float]:
    """The metrics that do not depend on the clock."""
    return {name: value for name, value in outcome.metrics.items() if name != "run/tokens_per_second"}


def test_a_unit_gives_metrics_a_curve_and_a_checkpoint(work):
    outcome = run(work)
    assert outcome.failure is None
    assert {"bits_per_byte", "loss", "run/train_loss", "run/tokens_per_second", "run/steps"} == set(outcome.metrics)
    assert outcome.metrics["run/steps"] == 6 and outcome.curve[-1][0] == 6
    assert (outcome.trial, outcome.rung) == (3, 1)
    assert outcome.checkpoint is not None
    assert set(checkpoints.weights(outcome.checkpoint))


def test_a_unit_learns(work):
    outcome = run(dataclasses.replace(work, steps=80, horizon=80))
    assert outcome.metrics["bits_per_byte"] < 5 < outcome.curve[0][1] / math.log(2)


def test_the_test_part_is_looked_at_only_when_training_is_over(work):
    outcome = run(dataclasses.replace(work, steps=12, checkpoint=None))
    assert {"test/bits_per_byte", "test/loss"} <= set(outcome.metrics)
    assert outcome.checkpoint is None


SCORED = (
    OWN.replace("import Task", "import Documents, Evaluation, Task")
    + """
    def evaluate(self, model, batches):
        values = [self.loss(model, batch, None).item() + place for place, batch in enumerate(batches)]
        documents = Documents("loss", ("first", "second"), values, [1.0, 1.0])
        return Evaluation({"loss": sum(values) / 2}, documents)
"""
)


def test_a_unit_at_its_horizon_carries_the_scores_of_its_held_out_documents(work):
    early, late = run(own(work, SCORED, checkpoint=None)), run(own(work, SCORED, checkpoint=None, steps=12))
    assert early.documents == {} and late.failure is None
    assert late.documents.keys() == {"validation", "test"}
    assert late.documents["test"].names == ("first", "second")
    assert late.documents["test"].value == pytest.approx(late.metrics["test/loss"])


def test_a_unit_that_is_not_tested_never_reads_the_test_part(work):
    guarded = SCORED.replace(
        "    def evaluate(",
        """    def held_out(self, split):
        assert split != "test"
        return super().held_out(split)

    def evaluate(""",
    )
    outcome = run(own(work, guarded, checkpoint=None, steps=12, tested=False))
    assert outcome.failure is None and outcome.documents.keys() == {"validation"}
    assert not any(name.startswith("test/") for name in outcome.metrics)
    assert run(own(work, guarded, checkpoint=None, steps=12)).failure is not None


def test_a_held_out_loss_that_is_not_a_number_is_not_finite(work):
    outcome = run(dataclasses.replace(work, steps=1, recipe={"learning_rate": 1e30, "warmup": 0}))
    assert outcome.failure.kind is FailureKind.NOT_FINITE
    assert outcome.failure.message.startswith("The validation metric bits_per_byte is ")


@pytest.mark.parametrize(
    ("asked", "metric"), [("loss", "loss"), ("bits_per_byte", "bits_per_byte"), ("flops", "bits_per_byte")]
)
def test_documents_are_scored_in_the_metric_of_the_objective(work, asked, metric):
    outcome = run(dataclasses.replace(work, steps=12, checkpoint=None, metric=asked))
    assert outcome.documents["test"].metric == metric
    assert outcome.documents["test"].value == pytest.approx(outcome.metrics[f"test/{metric}"])


@pytest.mark.parametrize("architecture", [ATTENTION, HALTING], ids=["attention", "halting"])
def test_going_on_from_a_checkpoint_equals_an_uninterrupted_unit(work, architecture):
    work = dataclasses.replace(work, architecture=architecture, steps=12)
    whole = run(work)
    part = run(dataclasses.replace(work, steps=5))
    torch.rand(7)
    rest = run(dataclasses.replace(work, start=part.checkpoint))
    assert lasting(rest) == lasting(whole)
    first, second = checkpoints.weights(whole.checkpoint), checkpoints.weights(rest.checkpoint)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_same_unit_gives_the_same_bytes_with_or_without_a_cache(work):
    first, second = run(work), run(dataclasses.replace(work, cache=None))
    assert first.checkpoint == second.checkpoint and lasting(first) == lasting(second)


def test_a_unit_leaves_the_process_as_it_was(work):
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state()
    run(dataclasses.replace(work, threads=before[0] + 1))
    assert before[:2] == (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    assert torch.equal(before[2], torch.get_rng_state())


def test_what_blocks_report_is_among_the_metrics(work):
    outcome = run(dataclasses.replace(work, architecture=HALTING, steps=2))
    assert 1 <= outcome.metrics["halting_steps"] <= 3


def test_digits_are_classified(work):
    outcome = run(dataclasses.replace(work, architecture=IMAGES, task={"digits": {}}, steps=2))
    assert 0 < outcome.metrics["error"] <= 1


def test_a_lost_checkpoint_costs_time_and_nothing_else(work):
    whole = run(work)
    missing = Checkpoint(str(Path(work.checkpoint) / "gone.pt"), "0" * 64)
    damaged = run(dataclasses.replace(work, steps=2)).checkpoint
    Path(damaged.uri).write_bytes(b"damaged")
    other = run(dataclasses.replace(work, architecture=HALTING, steps=2)).checkpoint
    beyond = run(dataclasses.replace(work, steps=9)).checkpoint
    for start in (missing, damaged, other, beyond):
        outcome = run(dataclasses.replace(work, start=start))
        assert outcome.checkpoint == whole.checkpoint
        assert outcome.metrics["run/restarted"] == 1
    assert "run/restarted" not in whole.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": ATTENTION.replace("attention", "atention")}, "attention"),
        ({"architecture": ATTENTION.replace("heads: 2", "heads: 3")}, "heads"),
        ({"architecture": ATTENTION.replace("256", "99")}, "needs vocabulary: 256, but the architecture has .*99"),
        ({"architecture": IMAGES}, "needs kind: decoder, but the architecture has kind: encoder"),
        ({"recipe": {"clipp": 1}}, r"recipe: there is no 'clipp'. Did you mean 'clip'\?"),
    ],
)
def test_what_cannot_be_built_is_a_build_error_in_plain_words(work, changes, message):
    outcome = run(dataclasses.replace(work, **changes))
    assert outcome.failure.kind is FailureKind.BUILD_ERROR
    assert outcome.checkpoint is None and outcome.metrics == {}
    assert "Traceback" not in outcome.failure.message
    assert Path(work.checkpoint).exists() is False
    assert re.search(message, outcome.failure.message)


def test_a_metric_of_the_task_is_not_overwritten_by_the_runner(work):
    source = OWN + "\n    def metrics(self, model, batches):\n        return {'steps': 0.5, 'train_loss': 0.25}\n"
    outcome = run(own(work, source, steps=12))
    assert (outcome.metrics["steps"], outcome.metrics["train_loss"]) == (0.5, 0.25)
    assert (outcome.metrics["test/steps"], outcome.metrics["run/steps"]) == (0.5, 12)


def test_a_task_must_return_the_metrics_that_it_declares(work):
    source = (
        OWN.replace("import Task", "import Metric, Task") + "\n    reports = (Metric('loss'), Metric('accuracy'))\n"
    )
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert outcome.failure.message == "metrics must return what the task reports, but accuracy is missing from loss."


def test_outputs_that_do_not_fit_their_targets_are_the_tasks_fault(work):
    source = OWN.replace("def loss", "def outputs").replace(
        "self.score(model(batch, context))", "model(batch, context), batch[0]"
    )
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert "cross_entropy" in outcome.failure.message


def test_a_recipe_chooses_the_criterion(work):
    plain, smooth = (
        run(dataclasses.replace(work, recipe=recipe))
        for recipe in ({}, {"criterion": {"cross_entropy": {"label_smoothing": 0.5}}})
    )
    assert plain.curve[0][1] != smooth.curve[0][1]
    assert smooth.metrics["loss"] == pytest.approx(plain.metrics["loss"], rel=0.1)  # metrics do not depend on it


def test_a_criterion_is_rejected_for_a_task_with_a_loss_of_its_own(work):
    outcome = run(own(work, OWN, recipe={"criterion": "cross_entropy"}))
    assert outcome.failure.kind is FailureKind.BUILD_ERROR
    assert "the task Own computes its loss itself" in outcome.failure.message


def test_an_infinite_loss_is_not_finite(work):
    outcome = run(dataclasses.replace(work, recipe={"learning_rate": 1e30, "clip": 0}))
    assert outcome.failure.kind is FailureKind.NOT_FINITE
    assert "step" in outcome.failure.message


def test_an_infinite_metric_is_not_finite(work):
    source = OWN + "\n    def metrics(self, model, batches):\n        return {'loss': float('inf')}\n"
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.NOT_FINITE
    assert "validation metric loss is inf" in outcome.failure.message


def test_a_unit_past_its_limit_is_too_slow(work):
    outcome = run(dataclasses.replace(work, seconds=1e-6))
    assert outcome.failure.kind is FailureKind.TOO_SLOW


@pytest.mark.parametrize(
    "error",
    ["MemoryError()", "torch.OutOfMemoryError('CUDA out of memory')",
     'RuntimeError("[enforce fail] DefaultCPUAllocator: can\'t allocate memory")'],
)  # fmt: skip
def test_a_lack_of_memory_is_out_of_memory(work, error):
    source = OWN.replace("return logits.square().mean()", f"raise {error}")
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.OUT_OF_MEMORY
    assert outcome.failure.message.startswith("While training: ")


def test_real_memory_that_is_not_there_is_out_of_memory(work):
    source = OWN.replace("return logits.square().mean()", "return torch.empty(2**60).sum() + logits.mean()")
    assert run(own(work, source)).failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_users_own_task_is_trained_from_its_text(work):
    outcome = run(own(work, OWN))
    assert outcome.failure is None
    assert outcome.metrics["loss"] == pytest.approx(outcome.metrics["run/train_loss"], rel=0.5)


def test_an_error_in_the_users_task_shows_the_users_lines_alone(work):
    outcome = run(own(work, OWN.replace("return logits.square().mean()", "return logits.sqare().mean()")))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    lines = outcome.failure.message.splitlines()
    assert lines[1].strip() == 'File "far/own.py", line 16, in loss'
    assert "return logits.sqare().mean()" in outcome.failure.message
    assert "unit.py" not in outcome.failure.message and "loop.py" not in outcome.failure.message
    assert lines[-1].startswith("AttributeError")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Own(Task):", "class Own(Task)", "SyntaxError"),
        ("import torch\n", "import torhc\n", "torhc"),
        ("def draw", "def drawn", "Own lacks draw"),
        ("return logits.square().mean()", "return 3.0", "loss must return a tensor, but it returned float"),
        ('return {"vocabulary": 256}', "return {}[0]", "KeyError: 0"),
        ("def requires(self):",
         "def batches(self, split, seed, start=0):\n        return iter(())\n\n    def requires(self):",
         "batches must not end, but it ended before step 1"),
        ("def requires(self):", "def metrics(self, model, batches):\n        return 3\n\n    def requires(self):",
         "metrics must return a dict of numbers, but it returned 3"),
        ("def requires(self):", "def evaluate(self, model, batches):\n        return 3\n\n    def requires(self):",
         "evaluate must return an Evaluation, but it returned 3"),
        ("def requires(self):",
         "def evaluate(self, model, batches):\n        from nas.tasks import Documents, Evaluation\n"
         "        return Evaluation({'loss': 2.0}, Documents('loss', 'a', [1.0], [1.0]))\n\n    def requires(self):",
         "must give the metric loss, 2, but they give 1"),
        ("def requires(self):", "def prepare(self, cache):\n        open('nothing-here')\n\n    def requires(self):",
         "No such file or directory: 'nothing-here'"),
    ],
    ids=["syntax", "import", "incomplete", "loss", "requires", "batches", "metrics", "evaluate", "documents",
         "prepare"],
)  # fmt: skip
def test_whatever_is_wrong_in_the_users_task_is_a_task_error(work, old, new, message):
    assert old in OWN
    outcome = run(own(work, OWN.replace(old, new, 1)))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert message in outcome.failure.message


def test_missing_data_is_a_task_error_in_plain_words(work):
    outcome = run(dataclasses.replace(work, task={"language_model": {"data": "no/such/*.txt"}}))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert outcome.failure.message.startswith("data: no file matches 'no/such/*.txt'")


def test_a_block_that_fails_in_training_is_not_blamed_on_the_task(work, monkeypatch):
    def broken(architecture):
        model = unit.Architecture.parse(work.architecture).configured.build()
        del model.body
        return model

    monkeypatch.setattr(unit, "build", broken)
    outcome = run(own(work, OWN))
    assert outcome.failure.kind is FailureKind.BUILD_ERROR
    assert "body" in outcome.failure.message and 'File "far/own.py"' in outcome.failure.message


@pytest.mark.parametrize("name", ["run/steps", "training loss", "attention_span"])
def test_a_task_cannot_return_a_metric_under_a_name_of_the_runner(work, name):
    source = OWN + f"\n    def metrics(self, model, batches):\n        return {{'loss': 1.0, {name!r}: 1.0}}\n"
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert f"A metric of a task cannot be called {name!r}" in outcome.failure.message


@pytest.mark.parametrize("name", ["", "a\0b", "a\x1b[2J", "\ud800", "x" * 101])
def test_a_metric_with_a_name_that_cannot_be_stored_or_shown_is_refused(work, name):
    source = OWN + f"\n    def metrics(self, model, batches):\n        return {{{name!r}: 1.0}}\n"
    outcome = run(own(work, source))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert "A metric needs a name of 1 to 100 printable characters" in outcome.failure.message
    outcome.failure.message.encode()


@pytest.mark.parametrize("raised", ["GeneratorExit", "SystemExit(1)", "BaseExceptionGroup('all', [SystemExit(1)])"])
def test_an_exception_of_any_type_shows_the_users_lines_alone(work, raised):
    outcome = run(own(work, OWN.replace("return logits.square().mean()", f"raise {raised}")))
    assert outcome.failure.kind is FailureKind.TASK_ERROR
    assert raised.partition("(")[0] in outcome.failure.message and "unit.py" not in outcome.failure.message


def test_an_interrupt_passes(work):
    source = OWN.replace("return logits.square().mean()", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        run(own(work, source))


def test_a_full_disk_is_no_fault_of_the_architecture(work, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(NasError, match="No space left"):
        run(work)


def test_a_place_of_checkpoints_that_does_not_answer_is_no_fault_of_the_architecture(work, monkeypatch):
    def fails(*arguments, **options):
        raise RuntimeError("No route to the host\nfor three reasons")

    work = dataclasses.replace(work, checkpoint="memory://away/x")
    said = r"memory://away/x.*RuntimeError: No route to the host\."
    for name in ("glob", "pipe_file"):  # before the training, and at its end
        with monkeypatch.context() as patch, pytest.raises(NasError, match=said):
            patch.setattr(MemoryFileSystem, name, fails)
            run(work)


@pytest.mark.parametrize("device", ["cuda:99", "toaster", "meta", "hpu"])
def test_a_device_that_is_not_there_is_no_fault_of_the_architecture(work, device):
    with pytest.raises(UsageError, match=device):
        run(dataclasses.replace(work, device=device))


def test_an_architecture_is_trained_outside_any_search(work, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heard = []
    task = {"language_model": {"data": "text.txt", "length": 16, "evaluation": 64}}
    outcome = train(ATTENTION, task, steps=2, out=tmp_path / "out", progress=heard.append)
    assert outcome.failure is None and outcome.metrics["run/steps"] == heard[-1].step == 2
    assert Path(outcome.checkpoint.uri).parent == tmp_path / "out"
    with pytest.raises(UsageError, match="there is no 'rate'"):
        train(ATTENTION, task, {"rate": 1}, steps=2)
