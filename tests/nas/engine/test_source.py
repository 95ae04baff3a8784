"""Why nothing is left to propose."""

import pytest

from nas.engine.source import Exhausted, ProposedNothing, Source, chosen_point
from nas.errors import StoreError
from nas.strategies.contract import Result, Started
from nas.strategies.random import Random
from nas.strategies.registry import make
from searchspace.space.space import Space

SMALL = "{kind: decoder, width: !choice [32, 64], vocabulary: 64, body: !choice [gru, attention]}"
LARGE = "{kind: decoder, position: none, width: !int [1, 4000], vocabulary: 64, body: {feed_forward: {expand: 1}}}"


def told(space, failures):
    """A source whose strategy knows every point that `failures` names, and the hashes."""
    strategy, known = make("random", space, 0, 1), set()
    for number, (point, failure) in enumerate(failures):
        strategy.start(Started(number, point))
        strategy.tell(Result(number, 0, 1, point, None if failure else (1.0,), failure))
        known.add(point.architecture.hash)
    return Source(space, strategy), known


def test_everything_was_tried_and_some_failed():
    space = Space.parse(SMALL)
    points = list(space.enumerate())
    source, known = told(space, zip(points, ["out of memory", None, "not finite", "out of memory"]))
    with pytest.raises(Exhausted, match=r"has been tried\. Some failed: 2 out of memory, 1 not finite\.$"):
        source.propose(4, 1, known)


def test_everything_was_tried():
    space = Space.parse(SMALL)
    source, known = told(space, ((point, None) for point in space.enumerate()))
    with pytest.raises(Exhausted, match=r"every architecture in it has been tried\.$"):
        source.propose(4, 1, known)


def test_everything_that_is_left_fails(monkeypatch):
    space = Space.parse(LARGE)
    source, known = told(space, [(space.point({"width": 8}), "no value"), (space.point({"width": 9}), None)])
    monkeypatch.setattr(space, "sample", lambda rng, by: space.point({"width": 8}))
    with pytest.raises(Exhausted, match=r"known to fail \(1 are\): 1 no value\. Look at their errors"):
        source.propose(2, 1, known)


class Idle(Random):
    def ask(self, number, count=1, attempt=0):
        return []


def test_a_strategy_that_proposes_nothing_is_the_reason():
    space = Space.parse(LARGE)
    with pytest.raises(ProposedNothing, match=r"^The strategy proposed nothing, 500 times in a row\.$"):
        Source(space, Idle(space, seed=0)).propose(0, 1, set())


def test_the_remaining_points_stand_in_for_a_strategy_that_proposes_nothing():
    space = Space.parse(SMALL)
    source = Source(space, Idle(space, seed=0))
    assert source.propose(0, 1, set())[0].operator == "the last ones"
    assert source.idle == "The strategy proposed nothing, 50 times in a row."
    known = {point.architecture.hash for point in space.enumerate()}
    with pytest.raises(Exhausted, match=r"has been tried\. The strategy proposed nothing, 50 times in a row\.$"):
        source.propose(4, 1, known)


def test_choices_that_give_another_architecture_are_named():
    space = Space.parse(SMALL)
    one, other, *_ = space.enumerate()
    assert chosen_point(space, one.choices, one.architecture.hash).architecture.text() == one.architecture.text()
    with pytest.raises(StoreError, match=f"the architecture '{other.architecture.hash}' give another one"):
        chosen_point(space, one.choices, other.architecture.hash).architecture.text()
