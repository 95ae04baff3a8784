"""What a search would do, and what stands in its way."""

import pytest

from nas.engine import launch, planning
from nas.engine.forecast import forecast
from nas.engine.resolve import resolve
from nas.errors import NasError
from nas.report import summary
from nas.training import unit
from nas.work import Failure, FailureKind, Outcome

QUICK = "{language_model: {length: 64, evaluation: 1024}}"  # a plan trains a few steps and evaluates
HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"


def test_a_plan_reads_well(describe):
    config = describe(
        task=QUICK,
        scheduler=HALVING,
        finals="{top: 2, seeds: 3, steps: [8, 24], baselines: [transformer, primer], match: [parameters, flops], "
        "shapes: [deep, wide], tune: {learning_rate: [0.1, 0.2, 0.4]}}",
        budget="{trials: 12, minutes: 30}",
    )
    made = planning.plan(config)
    lines = dict(line.split(None, 1) for line in made.as_text().splitlines() if not line.startswith("a step"))

    assert lines["trials"] == "12, of 2 steps; about 7 continue to 4, 3 continue to 8 steps in all"
    # tries: 3 of each of 2 finalists and of 2 baselines, matched in 2 ways, in 2 shapes; finals: 3 seeds of 2 and of 4
    assert lines["finals"] == f"{3 * (2 + 8) + 3 * 6} units of 8 steps, 18 units of 24 steps"
    told = "at most 20% of a unit's training, on a part of the held-out data; in the finals on all 1,024 held-out"
    assert lines["evaluation"] == f"{told} positions"
    assert lines["objectives"] == "loss (minimize), parameters (minimize)"
    assert "cut off at 30 minutes a worker" in lines["time"]
    assert "validation 40" in lines["documents"] and "of the test text is in the training text" in lines["overlap"]
    assert made.parameters[0] <= made.parameters[1] <= made.parameters[2]
    assert 0 < made.search_seconds <= 1800


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        (2, "2, of 2 steps; none is expected to continue"),
        (8, "8, of 2 steps; about 2 continue to 6, none continue to 18 steps in all"),
    ],
)
def test_a_plan_says_that_too_few_trials_reach_no_further_rung(trials, text, describe):
    config = describe(task=QUICK, scheduler="{halving: {rungs: [2, 6, 18]}}", budget=f"{{trials: {trials}}}")
    assert f"trials      {text}\n" in planning.plan(config).as_text()


def test_a_plan_of_a_search_without_finals_does_not_speak_of_them(describe):
    assert "finals" not in planning.plan(describe(task=QUICK)).as_text()


def test_the_checkpoints_of_a_plan_are_those_of_the_mean_sample(describe, tmp_path):
    """Most of the space is tiny, so that the median says nothing about what all trials write together."""
    space = "{kind: decoder, width: !choice [8, 12, 16, 256], vocabulary: 256, body: !choice [attention, feed_forward]}"
    made = planning.plan(describe(task=QUICK, space=space, checkpoints=str(tmp_path / "kept")))
    _, median, high = (12 * each for each in made.parameters)  # bytes of the weights and of AdamW's two moments
    assert 3 * median < made.disk.checkpoint < high


def test_a_plan_sees_what_the_study_holds_already(describe, search):
    config = describe(task=QUICK, budget="{trials: 3}")
    with search(config) as result:
        assert result.study.config["data_facts"] == planning.plan(config).data
    larger = config.model_copy(update={"budget": config.budget.model_copy(update={"trials": 5})})

    assert "it has 3 of 5 trials" in planning.plan(larger).found


@pytest.mark.parametrize(("trials", "lengths", "seeds"), [(4, 1, 2), (30, 1, 3), (1_000, 2, 3)])
def test_the_default_finals_cost_at_most_as_much_as_the_search(trials, lengths, seeds, describe):
    found = resolve(describe(task=QUICK, scheduler=HALVING, finals="{top: 1}", budget=f"{{trials: {trials}}}")).config
    ahead = forecast(found)
    searched = sum(units * steps for units, steps in zip(ahead.units, ahead.steps))
    assert len(found.finals.steps) == lengths and found.finals.seeds == seeds
    if trials > 4:  # of four trials of two steps, the smallest finals cost more
        assert sum(each.units * each.steps for each in ahead.finals) <= 1.2 * searched
    written = "{top: 1, seeds: 3, steps: [8, 24], match: [parameters, flops]}"
    kept = resolve(describe(task=QUICK, scheduler=HALVING, finals=written, budget="{trials: 4}")).config.finals
    assert (kept.seeds, kept.steps, kept.match) == (3, (8, 24), ("parameters", "flops")), "what is written stays"


def test_a_plan_says_at_which_depth_the_flops_of_halting_models_count(describe):
    halting = "{kind: decoder, width: !choice [8, 16], body: {halting: {times: 3, of: [feed_forward]}}}"
    assert (
        "halting blocks count at the depth of an untrained model"
        in planning.plan(describe(task=QUICK, space=halting)).as_text()
    )


def test_a_sample_that_cannot_be_trained_is_told(describe, monkeypatch):
    failed = Outcome(trial=0, rung=0, seconds=0.1, failure=Failure(FailureKind.OUT_OF_MEMORY, "too large"))
    monkeypatch.setattr(unit, "run", lambda work: failed)

    with pytest.raises(NasError, match="out of memory: too large"):
        planning.plan(describe())


def test_a_plan_evaluates_once(describe, monkeypatch):
    evaluate, splits = unit.evaluate, []

    def counted(training, split, *given):
        splits.append(split)
        return evaluate(training, split, *given)

    monkeypatch.setattr(unit, "evaluate", counted)
    planning.plan(describe(task=QUICK))
    assert splits == ["validation"]


def test_one_sample_that_cannot_be_trained_is_a_warning(describe, monkeypatch):
    train, failed = unit.run, []

    def run(work):
        if not failed:
            failed.append(work)
            return Outcome(trial=0, rung=0, seconds=0.1, failure=Failure(FailureKind.OUT_OF_MEMORY, "too large"))
        return train(work)

    monkeypatch.setattr(unit, "run", run)
    made = planning.plan(describe(task=QUICK))
    assert len(made.warnings) == 1 and "(out of memory: too large)" in made.as_text()
    assert made.milliseconds_a_step > 0


def test_a_plan_for_a_cluster_is_timed_on_a_cpu_if_this_machine_has_no_such_device(describe):
    config = describe(task=QUICK)
    runner = config.runner.model_copy(update={"name": "ray", "options": {"gpus": 1}})
    made = planning.plan(config.model_copy(update={"device": "cuda:99", "runner": runner}))
    assert made.warnings[0].startswith("the times are those of a CPU. This machine has no device 'cuda:99'")


def test_a_search_without_a_result_is_summed_up_in_words(describe, search):
    config = describe(budget="{trials: 2}")
    store = launch.open_for(config)
    result = launch.Result(config, store, launch.enter(store, resolve(config, store)), [], None)

    assert "No trial has finished" in summary.to_text(store, result.study, None, draw=lambda winner: "")
    found = summary.to_dict(store, result.study, None)
    assert found.pop("ranking")["sentences"] == []
    assert found | {"header": None} == {
        "study": "tried",
        "header": None,
        "pareto": [],
        "probes": [],
        "controls": [],
        "uncompared": [],
        "pending": [],
        "finals": None,
    }
    store.close()
