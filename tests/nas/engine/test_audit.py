"""Probes are audited as trials finish; one that does not rank the trials is demoted."""

import random

import pytest

from nas import report
from nas.engine.audit import FIRST, Audit
from nas.engine.replay import replay
from nas.report import summary
from nas.report.probes import Probe, probes
from nas.work import Outcome

STAGES = [("loss", "metric"), ("snip", "probe"), ("flops", "cost"), ("zico", "probe")]


def told(audit: Audit, count: int, noise: float, first: int = 0) -> list[bool]:
    """Results in which snip follows the loss and zico does not."""
    rng = random.Random(1)
    rows = [rng.random() for _ in range(first + count)]
    found = []
    for number, loss in list(enumerate(rows))[first:]:
        found.append(audit.tell(number, 10, (loss, loss + noise * rng.random(), 1.0, rng.random())))
    return found


def test_a_probe_that_does_not_rank_is_demoted_at_the_first_audit() -> None:
    audit = Audit.of(STAGES)
    found = told(audit, FIRST, 0.1)
    assert found == [False] * (FIRST - 1) + [True]
    assert audit.demoted == {3}
    assert audit.masked((1.0, 2.0, 3.0, 4.0)) == (1.0, 2.0, 3.0, 0.0)
    assert audit.masked(None) is None
    assert audit.found["snip"].low > 0 >= audit.found["zico"].low


def test_a_probe_counts_again_when_it_ranks() -> None:
    audit = Audit({1: "snip"}, 0)
    for number in range(FIRST):
        audit.tell(number, 10, (number, number % 3))
    assert audit.demoted == {1}
    changed = [audit.tell(number, 10, (number, number)) for number in range(FIRST, 200)]
    assert audit.demoted == frozenset() and sum(changed) == 1


def test_audits_compare_the_training_that_most_trials_have() -> None:
    audit = Audit({1: "snip"}, 0)
    for number in range(2 * FIRST):
        audit.tell(number, 10, (number, number))
    for number in range(FIRST):
        audit.tell(number, 90, (number, -number))
    assert audit.steps == 10 and audit.demoted == frozenset()


def test_a_probe_that_ranks_all_trials_is_not_demoted_by_those_that_were_chosen_to_continue() -> None:
    demoted = 0
    for seed in range(40):
        rng, audit = random.Random(seed), Audit({1: "snip"}, 0)
        losses = [rng.gauss(0, 1) for _ in range(90)]
        scores = [0.6 * loss + 0.8 * rng.gauss(0, 1) for loss in losses]
        for number, loss in enumerate(losses):
            audit.tell(number, 10, (loss, scores[number]))
        for number in sorted(range(90), key=losses.__getitem__)[:30]:
            audit.tell(number, 30, (losses[number], scores[number]))
        demoted += bool(audit.demoted)
    assert demoted <= 1


def test_the_sentence_says_why_a_probe_is_demoted() -> None:
    for values, reason in [
        (lambda number: (float(number), 1.0), "The probe snip has the same score for all trials; it is demoted"),
        (lambda number: (0.0, float(number)), "The metric is the same for all trials, so the probe snip is demoted"),
        (
            lambda number: (float(number), -float(number)),
            "The probe snip ranks the trials the wrong way round (rank",
        ),
        (lambda number: (float(number % 7), float(number % 5)), "The probe snip does not rank the trials (rank corr"),
    ]:
        audit = Audit({1: "snip"}, 0)
        for number in range(FIRST):
            audit.tell(number, 10, values(number))
        assert audit.demoted == {1}
        found = Probe("snip", 10, audit.found.get("snip"), True, audit.equal_metric)
        assert found.sentence().startswith(reason)


def test_without_a_probe_or_a_metric_there_is_no_audit() -> None:
    assert Audit.of([("loss", "metric"), ("flops", "cost")]) is None
    assert Audit.of([("snip", "probe"), ("flops", "cost")]) is None


def unit(work, progress=None):
    """A loss that follows from the trial; the probe's score does not."""
    if work.kind == "probe":
        return Outcome(
            trial=work.trial, rung=0, kind="probe", seconds=0.1, metrics={"snip": random.Random(work.trial).random()}
        )
    loss = 1 + random.Random(work.architecture).random()
    return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, metrics={"loss": loss})


@pytest.mark.parametrize("strategy", ["{nsga2: {start: 4, population: 6}}"])
def test_a_search_says_so_and_goes_on_without_it(describe, search, strategy) -> None:
    config = describe(objectives="[parameters, loss, snip]", strategy=strategy, budget="{trials: 26}")
    with search(config, unit) as result:
        (found,) = probes(result.store, result.study)
        assert replay(result.store, result.study).same  # demotions follow from the log
        text = summary.to_text(result.store, result.study, None, str)
        seen = report.status(result.store, result.study)
    assert found.demoted
    assert "The probe snip does not rank the trials (rank correlation " in text
    assert "it is demoted: the search ignores it." in seen.to_text()
