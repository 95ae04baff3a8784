"""What is proposed: the baselines, the strategy's first word that is new, the rest of a small space."""

from random import Random

import pytest

from nas.engine.source import Exhausted, Source, point_of
from nas.strategies import registry
from nas.strategies.contract import Result
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
    assert point_of(space, point.choices, text, hash) == point
    grown = Space.parse(SMALL.replace("[16, 24]", "[8, 16, 24, 32]"))
    assert point_of(grown, point.choices, text, hash).architecture == point.architecture
    assert point_of(grown, {"nowhere": 1}, text, hash).architecture == point.architecture
    outside = Architecture.parse(BASELINE)
    assert point_of(grown, {}, outside.text(), outside.hash) is None
