"""Who takes part in the finals: no arm and no baseline is missing without a word."""

import dataclasses

from nas.config.parts import parts
from nas.finals import entrants
from nas.finals.plan import plan
from nas.work import Failure, FailureKind
from searchspace.cost import Shape
from searchspace.matching import families
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

FINALS = "{top: 1, seeds: 2, steps: 20, baselines: [transformer], match: parameters, shapes: usual, tune: {}}"
ARM = "{trials: TRIALS}\narms: {random: {strategy: random, share: SHARE}}"
TWO = """
  kind: decoder
  width: !choice [16, 24]
  vocabulary: 256
  body: [residual: {of: {feed_forward: {expand: 2}}}]
"""


def failed(outcome):
    return dataclasses.replace(outcome, metrics={}, failure=Failure(FailureKind.NOT_FINITE, "diverged"))


def ended(result):
    """The verdict of a search, whose store is closed."""
    with result.store:
        return result.verdict


def with_arm(trials, share):
    return ARM.replace("TRIALS", str(trials)).replace("SHARE", str(share))


def test_an_arm_that_never_reached_the_last_rung_takes_part_with_its_best(describe, search):
    config = describe(scheduler="{halving: {rungs: [2, 6], factor: 3}}", budget=with_arm(10, 0.2), finals=FINALS)
    found = ended(search(config))
    (control,) = (each for each in found.entrants if each.role == "control")
    assert control.name == "best of arm random" and len(control.test[20]) == 2
    assert "the best of arm random" in found.sentence


def test_an_arm_without_a_finished_trial_is_named(describe, search, table):
    def run(work, progress=None):
        return failed(table(work)) if work.trial % 2 and work.trial < 4 else table(work)

    found = ended(search(describe(budget=with_arm(4, 0.5), finals=FINALS), run))
    assert found.empty_arms == ("random",) and not found.controls
    assert found.sentence.endswith("No trial of arm random has finished, so there is no control.")


def test_a_control_that_is_the_winner_is_named(describe, search):
    found = ended(search(describe(space=TWO, budget=with_arm(4, 0.5), finals=FINALS)))
    assert found.controls == {"best of arm random": None}
    assert "The best of arm random is the same architecture as trial" in found.sentence


def test_a_baseline_that_cannot_be_matched_is_named(describe, search):
    config = describe(
        space=TWO, budget="{trials: 2}", finals=FINALS.replace("match: parameters", "match: [state, parameters]")
    )
    found = ended(search(config))
    (line,) = found.missing
    assert line.startswith("transformer, same state: there is none. The winner") and line in found.notes()


def test_a_baseline_that_is_the_winner_itself_is_named(describe, search):
    space = """
  kind: decoder
  width: 32
  vocabulary: 256
  position: rotary
  final_norm: layer_norm
  body:
    - residual: {norm: layer_norm, of: {attention: {heads: 1}}}
    - residual: {norm: layer_norm, of: {feed_forward: {expand: 4, activation: gelu}}}
"""
    found = ended(search(describe(space=space, budget="{trials: 1}", finals=FINALS)))
    assert not found.baselines
    assert found.missing == ("transformer, same parameters, usual: it is the winner's own architecture.",)


def test_a_baseline_with_runs_stays_what_it_was_if_a_later_version_changes_its_file(describe, search, monkeypatch):
    config = describe(space=TWO, budget="{trials: 2}", finals=FINALS.replace("[transformer]", "[gru]"))
    result = search(config)
    with result.store as store:
        (before,) = result.verdict.baselines
        monkeypatch.setattr(families.zoo, "load", lambda _name, load=families.zoo.load: load("lstm", "tiny"))
        (winner,), _ = entrants.best_of_search(config, store, result.study, parts(config).objectives[0])
        (after,) = entrants.baselines(config, store, result.study, plan(config), winner).entrants
        assert after.architecture.hash == before.hash and "gru" in after.architecture.text()
        other = config.model_copy(update={"finals": config.finals.model_copy(update={"baselines": ("lstm",)})})
        (added,) = entrants.baselines(other, store, result.study, plan(other), winner).entrants
        assert "lstm" in added.architecture.text()


def test_a_baseline_with_a_single_lucky_run_comes_behind_one_with_several(describe, search, table):
    primers = []

    def run(work, progress=None):
        outcome = table(work)
        if "primer" not in work.architecture:
            return outcome
        primers.append(work.trial)
        lucky = dataclasses.replace(outcome, metrics={"loss": 0.1, "test/loss": 0.1})
        return lucky if len(primers) == 1 else failed(outcome)

    finals = FINALS.replace("[transformer]", "[primer, transformer]")
    found = ended(search(describe(space=TWO, budget="{trials: 2}", finals=finals), run))
    assert len(primers) == 2 and len(found.baselines) == 2
    assert found.against == {20: "transformer, same parameters, usual"}


def test_a_halting_winner_counts_at_its_depth_in_use_and_with_every_step_in_training(describe, search, table):
    space = "{kind: decoder, width: 16, vocabulary: 256, body: {halting: {times: 8, of: [feed_forward: {expand: 2}]}}}"

    def run(work, progress=None):
        outcome = table(work)
        depth = {20: 2.5, 10: 1.5}[work.steps]  # in the finals, and in the search
        return dataclasses.replace(outcome, metrics={**outcome.metrics, "halting_steps": depth})

    found = ended(search(describe(space=space, budget="{trials: 1}", finals=FINALS), run))
    winner = found.winner
    whole = cost(Architecture.parse(winner.architecture), length=128)
    searched, trained = (
        cost(Architecture.parse(winner.architecture), Shape(length=128, halting_steps=depth)).expected_flops
        for depth in (1.5, 2.5)
    )
    assert (winner.flops, winner.flops_in_runs, winner.training_flops) == (searched, trained, whole.training_flops)
    (row, *others) = found.rows()
    assert (row["FLOPs"], row["FLOPs in the finals"]) == (searched, trained)
    assert all(other["FLOPs"] == other["FLOPs in the finals"] for other in others), "no baseline halts"
    assert sum("steps of halting" in note for note in found.notes()) == 1
    assert winner.training_flops > 3.5 * winner.flops
