"""What is proposed: the baselines, the strategy's first word that is new, the rest of a small space."""

from random import Random

import pytest

from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import launch, session
from nas.engine.replay import replay
from nas.engine.resolve import resolve
from nas.engine.source import Exhausted, Source, point_of
from nas.strategies import registry
from nas.strategies.contract import Result
from searchspace.cost import Shape
from searchspace.model import build
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

SMALL = "{kind: decoder, width: !choice [16, 24], vocabulary: 256, body: !choice [attention, feed_forward, []]}"
BASELINE = "{kind: decoder, width: 48, vocabulary: 256, body: attention}"


@pytest.fixture
def space():
    return Space.parse(SMALL)


def source(space, *baselines, name="random"):
    return Source(space, registry.make(name, space, 0, 1), [Architecture.parse(text) for text in baselines])


@pytest.mark.parametrize("name", ["random", "nsga2", "aging_evolution"])
def test_every_architecture_of_a_small_space_is_proposed_once(space, name):
    made, known = source(space, name=name), set()
    for number in range(6):
        (proposal,) = made.propose(number, 1, known)
        assert proposal.point.architecture.hash not in known
        known.add(proposal.point.architecture.hash)
        made.strategy.tell(Result(number, 0, 1, proposal.point, (float(number),)))
    with pytest.raises(Exhausted, match="every architecture in it has been tried"):
        made.propose(6, 1, known)


def test_a_strategy_is_not_asked_for_what_the_list_of_a_small_space_shows_to_be_known(space, monkeypatch):
    made = source(space)
    *known, last = {point.architecture.hash for point in space.enumerate()}
    assert made.propose(5, 1, known)[0].point.architecture.hash == last
    monkeypatch.setattr(made.strategy, "ask", None)
    with pytest.raises(Exhausted, match="every architecture in it has been tried"):
        made.propose(6, 1, [*known, last])


def test_a_space_of_failures_is_searched_through_as_well(space):
    made, known = source(space), set()
    for number in range(6):
        (proposal,) = made.propose(number, 1, known)
        known.add(proposal.point.architecture.hash)
        made.strategy.tell(Result(number, 0, 1, proposal.point, None))
    with pytest.raises(Exhausted):
        made.propose(6, 1, known)


def test_baselines_come_first_and_once(space):
    made = source(space, BASELINE)
    (first,) = made.propose(0, 1, set())
    assert first.operator == "baseline" and first.point.architecture == Architecture.parse(BASELINE)
    assert made.propose(1, 1, {first.point.architecture.hash})[0].operator == "random"


def test_a_proposal_follows_from_what_is_known_alone(space):
    known = {source(space).propose(0, 1, set())[0].point.architecture.hash}
    assert source(space).propose(5, 1, known) == source(space).propose(5, 1, known)


def test_a_recorded_point_is_found_in_a_space_that_has_grown(space):
    point = space.sample(Random(0))
    text, hash = point.architecture.text(), point.architecture.hash
    assert point_of(space, point.choices, lambda: text, hash) == point
    grown = Space.parse(SMALL.replace("[16, 24]", "[8, 16, 24, 32]"))
    assert point_of(grown, point.choices, lambda: text, hash).architecture == point.architecture
    assert point_of(grown, {"nowhere": 1}, lambda: text, hash).architecture == point.architecture
    outside = Architecture.parse(BASELINE)
    assert point_of(grown, {}, outside.text, outside.hash) is None


@pytest.fixture
def shared(describe):
    """`shared()`: another process's proposer of the same study; with `.store` and `.study`."""
    config = describe(strategy="{nsga2: {start: 2, population: 4}}", budget="{trials: 12}")
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
        config = SearchConfig.stored(study.config)  # with the options that a study keeps

        def proposer():
            made = session.proposer(parts(config), store, study)
            made.absorb()
            return made

        proposer.store, proposer.study = store, study
        yield proposer


def finish(shared, unit, loss):
    shared.store.finish(unit.id, unit.owner, unit.attempt, {"loss": loss, "parameters": 1.0}, last=True)


def known(shared):
    return [(trial.known_trials, trial.known_results) for trial in shared.store.trials(shared.study.id)]


def test_free_workers_get_one_batch_of_distinct_proposals(shared, monkeypatch):
    asked, proposer = [], shared()
    ask = proposer.arms["main"].strategy.ask
    monkeypatch.setattr(
        proposer.arms["main"].strategy, "ask", lambda *args: (asked.append(args), ask(*args))[1], raising=True
    )
    units = proposer.new_trials(["a", "b", "c"], 60, 12)
    assert asked == [(0, 3, 0)] and [unit.owner for unit in units] == ["a", "b", "c"]
    assert len({unit.architecture_hash for unit in units}) == 3
    assert known(shared) == [(0, 0)] * 3
    proposer.new_trials(["a"], 60, 12)
    assert known(shared)[3] == (3, 0)


def test_the_budget_cuts_a_batch_short(shared):
    proposer = shared()
    assert len(proposer.new_trials(["me"] * 5, 60, 3)) == 3
    assert proposer.new_trials(["me"], 60, 3) == [] and proposer.exhausted is None


def test_a_trial_that_another_process_added_is_pending_before_the_next_proposal(shared):
    one, other = shared(), shared()
    (first,) = one.new_trials(["one"], 60, 12)
    (second,) = other.new_trials(["other"], 60, 12)  # number 0 is taken: it reads, and asks again
    assert (second.number, second.architecture_hash != first.architecture_hash) == (1, True)
    assert known(shared) == [(0, 0), (1, 0)]


def test_arms_are_built_again_when_another_process_knew_fewer_results(shared):
    one, other = shared(), shared()
    units = one.new_trials(["one"] * 2, 60, 12)
    other.absorb()
    finish(shared, units[0], 1.0)
    one.absorb()
    strategy = one.arms["main"].strategy
    (third,) = other.new_trials(["other"], 60, 12)  # it does not know the result yet
    (fourth,) = one.new_trials(["one"], 60, 12)
    assert one.arms["main"].strategy is not strategy
    assert known(shared) == [(0, 0), (0, 0), (2, 0), (3, 1)]
    for unit, loss in ((units[1], 3.0), (third, 2.0), (fourth, 4.0)):
        finish(shared, unit, loss)
    for each in (one, other):
        each.absorb()
        each.new_trials(["me"] * 2, 60, 12)
    report = replay(shared.store, shared.study)
    assert report.same and report.trials == 8, report.as_text()


def test_a_process_that_starts_later_proposes_what_the_first_one_would(shared):
    one = shared()
    for loss in (3.0, 1.0, 2.0):
        (unit,) = one.new_trials(["one"], 60, 12)
        finish(shared, unit, loss)
        one.absorb()
    one.new_trials(["one"] * 2, 60, 12)
    later = shared()
    proposals = [arm.propose(5, 2) for arm in (one.arms["main"], later.arms["main"])]
    assert proposals[0] == proposals[1]


def test_a_strategy_can_evaluate_what_needs_no_training(shared):
    proposer = shared()
    point = proposer.space.sample(Random(0))
    loss, parameters = proposer.arms["main"].strategy.evaluate(point)
    assert loss is None and parameters == build.cost(point.architecture, Shape(batch=1, length=128)).parameters
