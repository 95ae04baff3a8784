"""Objectives that score the untrained model: a unit on a worker, before the trial is trained."""

import pytest
import torch

from nas.config import searchfile
from nas.engine import launch
from nas.engine.loop import NothingFound
from nas.engine.replay import replay
from nas.engine.resolve import resolve
from nas.errors import NasError, UsageError
from nas.latency.measured import CannotRun
from nas.latency.predicted import Predictor
from nas.objectives import make
from nas.runners.inline import InlineRunner
from nas.store import TrialState, UnitKind
from nas.study import Study
from nas.training.unit import run as train
from nas.work import Outcome
from searchspace.cost import Shape

TASK = """
import torch
from torch.nn import functional as F
from nas.tasks import Task

class First(Task):
    batch, length, evaluation_batches = 4, 6, 1

    def requires(self):
        return {"kind": "decoder", "vocabulary": 8}

    def draw(self, split, seed, index):
        tokens = torch.randint(8, (self.batch, self.length), generator=torch.Generator().manual_seed(index))
        return tokens, tokens[:, :1].expand(-1, self.length)

    def loss(self, model, batch, context):
        tokens, target = batch
        return F.cross_entropy(model(tokens, context).flatten(0, 1), target.flatten())
"""
SEARCH = """
study: probed
space: {{kind: decoder, width: !choice [8, 16, 24, 32], vocabulary: 8, body: {{feed_forward: {{expand: !int [1, 3]}}}}}}
task: task.py
objectives: [loss, gradient_norm, parameters]
strategy: random
scheduler: {scheduler}
runner: {runner}
budget: {{trials: {trials}}}
storage: sqlite:///{folder}/probed.db
"""


@pytest.fixture
def probed(tmp_path):
    """`probed(trials=2)`: a search with a probe, of a task that takes milliseconds."""
    (tmp_path / "task.py").write_text(TASK)

    def made(trials=2, scheduler="{full: {steps: 2}}", runner="{inline: {process: false}}", objective="gradient_norm"):
        text = SEARCH.format(folder=tmp_path, trials=trials, scheduler=scheduler, runner=runner)
        return searchfile.parse(text.replace("gradient_norm", objective), folder=tmp_path)

    return made


def units_of(result):
    """{number: the units of the trial}, and the trials."""
    with result.store as store:
        trials = store.trials(result.study.id)
        return {trial.number: store.units(result.study.id, trial.number) for trial in trials}, trials


def test_a_probe_scores_every_trial_before_its_training(probed):
    works = []

    def run(work, progress=None):
        works.append((work.trial, work.kind, work.steps))
        return train(work, progress)

    result = launch.search(probed(), quiet=True, runner=InlineRunner(run))
    units, trials = units_of(result)
    assert works == [(0, "probe", 0), (0, "train", 2), (1, "probe", 0), (1, "train", 2)]
    for trial in trials:
        probe, training = units[trial.number]
        norm = trial.cheap_values["gradient_norm"]
        assert (probe.kind, probe.values) == (UnitKind.PROBE, {"gradient_norm": norm}) and norm > 0
        assert (training.kind, training.rung, training.values) == (UnitKind.TRAIN, 0, trial.values)
        assert set(trial.values) == {"loss", "gradient_norm", "parameters"}
        assert trial.values["gradient_norm"] == norm and trial.state is TrialState.COMPLETE


def test_the_gradient_norm_is_that_of_the_loss(probed):
    objective = make("gradient_norm", Shape(batch=1, length=6))
    assert (objective.stage, objective.direction) == ("probe", "maximize")
    model = torch.nn.Linear(3, 1, bias=False)

    class Squares:
        def loss(self, model, batch, context):
            return model(batch).square().sum()

    batch = torch.tensor([[1.0, 2.0, 2.0]])
    expected = 2 * abs(model(batch).item()) * 3  # 2 y x, and the norm of x is 3
    assert objective.score(model, batch, Squares()) == pytest.approx(expected)


def test_promotions_and_replays_do_not_see_probes(probed, disorderly):
    config = probed(trials=6, scheduler="{halving: {rungs: [1, 2], factor: 2}}")

    def run(work, progress=None):
        metrics = {"gradient_norm": 1.0 + work.trial} if work.kind == "probe" else {"loss": 1.0 / (1 + work.trial)}
        return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=1.0, metrics=metrics)

    result = launch.search(config, quiet=True, runner=disorderly(run))
    with result.store as store:
        report = replay(store, result.study)
        units = [unit for trial in range(6) for unit in store.units(result.study.id, trial)]
        assert store.trained_seconds(result.study.id) == len(units)
    assert report.same, report.as_text()
    kinds = [unit.kind for unit in units]
    assert kinds.count(UnitKind.PROBE) == 6 and kinds.count(UnitKind.TRAIN) == report.results >= 9


CRASH = TASK.replace(
    "    def loss", "    def batches(self, split, seed, start=0):\n        return iter(())\n\n    def loss", 1
)


def test_a_probe_that_raises_is_a_typed_failure_and_nothing_is_trained(probed, monkeypatch):
    def broken(self, model, batch, task):
        raise ZeroDivisionError("in the probe")

    monkeypatch.setattr("nas.objectives.probes.gradient_norm.GradientNorm.score", broken)
    with pytest.raises(NothingFound, match="2 probe error"):
        launch.search(probed(), quiet=True)
    with launch.open_for(probed()) as store:
        study = store.study("probed")
        trials = store.trials(study.id)
        assert [trial.error_kind for trial in trials] == ["probe error"] * 2
        assert "ZeroDivisionError: in the probe" in trials[0].error_text
        assert [[unit.kind for unit in store.units(study.id, number)] for number in (0, 1)] == [[UnitKind.PROBE]] * 2


def test_a_task_that_breaks_during_a_probe_is_a_task_error(probed, tmp_path):
    config = probed()
    config = config.model_copy(update={"task_source": CRASH})
    with pytest.raises(NothingFound, match="task error"):
        launch.search(config, quiet=True)


class Breakdown(NasError):
    pass


def test_a_search_that_dies_between_probe_and_training_goes_on_with_the_training(probed):
    ran = []

    def run(work, progress=None):
        if work.kind == "train" and len(ran) == 1:
            ran.append("gone")
            raise Breakdown("gone")
        ran.append((work.trial, work.kind))
        return train(work, progress)

    with pytest.raises(Breakdown):
        launch.search(probed(), quiet=True, runner=InlineRunner(run))
    units, _ = units_of(launch.search(probed(), quiet=True, runner=InlineRunner(run)))
    assert ran == [(0, "probe"), "gone", (0, "train"), (1, "probe"), (1, "train")]
    assert [len(each) for each in units.values()] == [2, 2]


def test_a_probe_can_be_asked_for_and_told_from_outside(probed):
    config = probed(trials=1)
    store = launch.open_for(config)
    with Study(store, launch.enter(store, resolve(config, store))) as study:
        (probe,) = study.ask()
        assert (probe.kind, probe.rung, probe.steps) == ("probe", 0, 0)
        assert study.tell(probe, {"gradient_norm": 2.5})
        (training,) = study.ask()
        assert (training.kind, training.trial, training.steps) == ("train", 0, 2)
        assert study.tell(training, {"loss": 1.0})
        assert study.best()[0].values["gradient_norm"] == 2.5


LATENCY = "{latency: {phase: %s, length: 4, threads: 1, on: {resources: {quiet: 1}}, name: board_ms}}"


@pytest.mark.usefixtures("measured_once")
def test_a_worker_measures_a_latency_before_the_training(probed):
    found = {}

    def run(work, progress=None):
        outcome = train(work, progress)
        found[work.trial, work.kind] = outcome.metrics
        return outcome

    result = launch.search(probed(objective=LATENCY % "prefill"), quiet=True, runner=InlineRunner(run))
    with result.store as store:
        (trial,) = (each for each in store.trials(result.study.id) if each.number == 0)
        probe, training = store.units(result.study.id, 0)
    assert (probe.kind, training.kind) == (UnitKind.PROBE, UnitKind.TRAIN)
    assert trial.values["board_ms"] == trial.cheap_values["board_ms"] > 0
    metrics = found[0, "probe"]
    assert metrics["board_ms/low_ms"] <= trial.values["board_ms"] <= metrics["board_ms/high_ms"]
    told = trial.evidence["board_ms"]
    assert told["milliseconds"] == trial.values["board_ms"] and told["device"]["key"] and "served" in told
    with launch.open_for(probed(objective=LATENCY % "prefill")) as store:
        assert store.faults() == []


@pytest.mark.usefixtures("measured_once")
def test_the_latencies_of_a_study_are_of_one_device_even_after_a_restart(probed):
    devices = iter("ABBA")

    def run(work, progress=None):
        outcome = train(work, progress)
        if work.kind == "probe":
            name = next(devices)
            outcome.evidence["board_ms"]["device"] = {"key": name.lower(), "name": f"Board {name}", "asked": "cpu"}
        return outcome

    for trials in (2, 4):
        result = launch.search(probed(trials, objective=LATENCY % "prefill"), quiet=True, runner=InlineRunner(run))
        _, found = units_of(result)
    assert [trial.state is TrialState.COMPLETE for trial in found] == [True, False, False, True]
    assert "a worker measured it on Board B (b), but the study's values are of Board A (a)" in found[2].error_text


def test_a_worker_that_cannot_measure_fails_the_trial_and_the_search_goes_on(probed, monkeypatch):
    def fails(self, architecture):
        raise CannotRun("it does not run")

    monkeypatch.setattr(Predictor, "measured", fails)
    with pytest.raises(NothingFound, match="objective board_ms: it does not run"):
        launch.search(probed(objective=LATENCY % "prefill", trials=1), quiet=True)


@pytest.mark.parametrize(
    ("on", "says"),
    {
        "{resources: {}}": r"must be \{resources: \{NAME: AMOUNT\}\} or \{machine: NAME\}",
        "{resources: quiet}": r"must be \{resources: \{NAME: AMOUNT\}\}",
        "{quiet: {a: 1}}": r"must be \{resources: \{NAME: AMOUNT\}\}",
        "{machine: laptop, resources: {quiet: 1}}": r"must be \{resources: \{NAME: AMOUNT\}\}",
        "{machine: 5}": r"must be .* or \{machine: NAME\}",
        "{resources: {quiet: 0}}": "number of at least 0.0001 as the amount of quiet",
        "{resources: {quiet: .inf}}": "number of at least 0.0001",
        "{resources: {quiet: .nan}}": "number of at least 0.0001",
        "{resources: {quiet: '1'}}": "number of at least 0.0001",
        "{resources: {quiet: true}}": "number of at least 0.0001",
        "{resources: {quiet: 1e-9}}": "number of at least 0.0001",
        "{resources: {GPU: 1.5}}": "whole number as the amount of GPU",
        "{resources: {é: 1}}": "custom resources of Ray, and 'é' is none of them",
        "{resources: {memory: 1}}": "custom resources of Ray, and 'memory' is none of them",
    }.items(),
)
def test_a_place_that_ray_cannot_hold_is_refused_before_the_search(probed, on, says):
    with pytest.raises(UsageError, match=f"option 'on': .*{says}"):
        probed(objective=LATENCY.replace("{resources: {quiet: 1}}", on) % "prefill")
