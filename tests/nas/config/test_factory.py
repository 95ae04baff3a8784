"""From the names of a search file to the parts of a search."""

from dataclasses import replace
from pathlib import Path

from nas.config.parts import parts
from nas.engine import launch
from nas.engine.resolve import resolve
from nas.numbers import FIRST_FINAL
from nas.runners.inline import InlineRunner
from nas.store import TrialAdded, Unit, UnitState
from nas.work import FEWEST


def test_a_unit_becomes_plain_work(describe):
    config = describe(seed="7", limits="{unit_seconds: 5}").model_copy(update={"checkpoints": "kept/here"})
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
        added = store.add_trial(
            study.id, 0, ("hash", "text"), seed=7, purpose="search", operator="random", choices={}, known_results=0,
            steps=3, owner="me",
        )  # fmt: skip
        assert isinstance(added, TrialAdded)
        work = parts(config).work(added.unit, 9)
    assert (work.trial, work.rung, work.steps, work.horizon, work.seed, work.seconds) == (0, 0, 3, 9, 7, 5.0)
    assert work.task == {"language_model": {}} and work.start is None and work.threads == 1
    assert Path(work.checkpoint) == Path("kept/here").absolute()  # a worker's folder may be another


def test_checkpoints_may_lie_at_a_url_or_nowhere(describe):
    with launch.open_for(config := describe()) as store:
        study = launch.enter(store, resolve(config, store))
        unit = store.add_trial(
            study.id, 0, ("hash", "text"), seed=0, purpose="search", operator="random", choices={}, known_results=0,
            steps=3, owner="me",
        ).unit  # fmt: skip
    for written in ("s3://bucket/folder", None):
        made = parts(config.model_copy(update={"checkpoints": written})).work(unit, 9)
        assert made.checkpoint == written


def test_constraints_are_about_sequences_as_long_as_the_tasks(describe):
    config = describe()
    longer = config.model_copy(update={"task": config.task.model_copy(update={"options": {"length": 64}})})
    assert (parts(config).space.length, parts(longer).space.length) == (128, 64)


def test_threads_follow_the_cpus_of_a_unit(describe):
    config = describe()
    for cpus, threads in ((0.5, 1), (1, 1), (2.5, 2), (4, 4)):
        runner = config.runner.model_copy(update={"options": {"cpus": cpus}})
        assert parts(config.model_copy(update={"runner": runner})).threads == threads


def test_the_inline_runner_needs_no_options(describe):
    assert isinstance(parts(describe()).runner(), InlineRunner)


def test_units_of_a_search_are_evaluated_on_a_share_of_their_training_and_finals_on_everything(describe):
    built = parts(describe())
    unit = Unit(id=1, rung=0, steps=100, state=UnitState.RUNNING, purpose="search", number=0)
    rows = built.task.shape.rows
    assert built.work(unit, 100).evaluated == 60 * rows  # a fifth of 100 steps, each as much as three evaluations
    assert built.work(replace(unit, steps=1), 1).evaluated == FEWEST
    assert built.work(replace(unit, purpose="final", number=FIRST_FINAL), 100).evaluated is None
