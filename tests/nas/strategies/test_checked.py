"""A strategy of the user's own that breaks the contract is stopped, with what it answered and what was expected."""

import random
from collections import UserDict
from itertools import repeat
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from nas.engine.replay import replay
from nas.errors import NasError, UsageError
from nas.strategies.base import StrategyBase
from nas.strategies.checked import CheckedStrategy, StrategyProblem
from nas.strategies.contract import NothingLeft, Proposal, Result, Started
from nas.strategies.random import Random
from nas.strategies.registry import registry, strategy
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.space.point import Point
from searchspace.space.space import Space

SPACE = Space.parse("""
kind: decoder
width: !choice [16, 32]
vocabulary: 256
body:
  - residual: {norm: rms_norm, of: {attention: {heads: !choice [2, 4]}}}
""")
POINT = SPACE.sample(random.Random(0))
OTHER = next(SPACE.neighbours(POINT, random.Random(0)))


def deferred(hash):
    """The architecture of `POINT`, which claims to have this hash."""
    return Architecture.deferred(hash, lambda: POINT.architecture)


def of_kind(**methods):
    """The architecture of `POINT` in a class with other methods."""
    return type("Mine", (Architecture,), methods)(POINT.architecture.root)


def checked(**methods):
    """Random search on `SPACE` with other methods, checked."""
    return CheckedStrategy("mine", type("Mine", (Random,), methods)(SPACE, seed=0), SPACE)


def proposing(answer):
    return checked(propose=lambda self, rng, number, tried: answer)


def asking(answer):
    return checked(ask=lambda self, number, count=1, attempt=0: answer)


WRONG = [
    (None, r"a Proposal\(point, operator, parents\)"),
    (POINT, r"a Proposal\(point, operator, parents\)"),
    (Proposal(None, "m"), "whose point has choices and an architecture"),
    (Proposal(Point({}, None), "m"), "whose point has choices and an architecture"),
    (Proposal(Point([1], POINT.architecture), "m"), "whose point has choices and an architecture"),
    *(
        (Proposal(POINT, operator), "whose operator is text on one line")
        for operator in (5, None, b"m", "a\nb", "a\0", "\u202eb", "\u2028", "\ud800", "m" * 201)
    ),
    *(
        (Proposal(POINT, "m", parents), "whose parents are a tuple of numbers of trials")
        for parents in (
            None,
            3,
            "12",
            {"a"},
            (float("nan"),),
            (1.0,),
            (np.float64(1),),
            (True,),
            (-1,),
            (10**30,),
            {1: 2},
            range(257),
            range(2**31),
        )
    ),
]


@pytest.mark.parametrize(("answer", "expected"), WRONG)
def test_a_proposal_is_checked(answer, expected):
    with pytest.raises(
        StrategyProblem, match=rf"'mine' broke its contract: propose\(3, 0\) answered .*{expected}"
    ) as caught:
        proposing(answer).ask(3)
    assert len(str(caught.value)) < 1000
    with pytest.raises(StrategyProblem, match=rf"'mine' broke its contract: ask\(3, 1, 0\) answered \[.*{expected}"):
        asking([answer]).ask(3)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (Point(POINT.choices, OTHER.architecture), "a point whose architecture is the one that its choices give"),
        (Point({"width": 17}, POINT.architecture), r"a point of the space \(.*17 does not fit"),
        (Point({**POINT.choices, "more": 1}, POINT.architecture), r"a point of the space \(.*no such hole"),
        (Point({}, SimpleNamespace(hash="a")), "whose point has an Architecture"),
        (Point({}, deferred("a")), "a point whose architecture is the one that its text describes"),
        (Point(POINT.choices, deferred("a")), "a point whose architecture is the one that its choices give"),
        (Point({}, of_kind(text=lambda self: "width: [")), r"an architecture whose text is valid \("),
    ],
)
def test_a_point_is_what_the_study_makes_again_from_what_it_stores(point, expected):
    with pytest.raises(StrategyProblem, match=rf"'mine' broke its contract: ask\(0, 1, 0\) answered .*{expected}"):
        proposing(Proposal(point, "m")).ask(0)


@pytest.mark.parametrize(
    "point",
    [
        Point({}, deferred(POINT.architecture.hash)),
        Point(type("Choices", (dict,), {"items": None})(POINT.choices), POINT.architecture),
        Point(MappingProxyType(POINT.choices), POINT.architecture),
        Point(UserDict(POINT.choices), POINT.architecture),
        Point({np.str_(path): np.array(each)[()] for path, each in POINT.choices.items()}, POINT.architecture),
        Point(POINT.choices, of_kind(text=lambda self: "width: [")),
    ],
)
def test_what_is_lazy_or_of_another_class_becomes_plain(point):
    (found,) = proposing(Proposal(point, "m")).ask(0)
    assert found.point == point and found.point.architecture.text() == POINT.architecture.text()
    assert type(found.point) is Point and type(found.point.choices) is dict
    assert {*map(type, found.point.choices), *map(type, found.point.choices.values())} <= {str, int}
    assert type(found.point.architecture) is Architecture


@pytest.mark.parametrize("operator", ["", "a\u00a0b", "\u2003", "\N{WOMAN}\u200d\N{MICROSCOPE}", "m" * 200])
def test_an_operator_may_have_spaces_of_any_width_and_emoji(operator):
    assert proposing(Proposal(POINT, operator)).ask(0)[0].operator == operator


def test_an_error_of_a_deferred_architecture_names_the_strategy():
    point = Point({}, Architecture.deferred("a", lambda: {}["no such key"]))
    with pytest.raises(StrategyProblem, match=r"'mine' raised an error in ask\(0, 1, 0\):\nTraceback"):
        proposing(Proposal(point, "m")).ask(0)


@pytest.mark.parametrize(("parents", "trial"), [((3,), 3), ((0, 4), 3)])
def test_a_parent_is_an_earlier_trial(parents, trial):
    with pytest.raises(StrategyProblem, match=rf"a proposal for trial {trial}, whose parents are earlier trials"):
        proposing(Proposal(POINT, "m", parents)).ask(trial)
    with pytest.raises(StrategyProblem, match=rf"a proposal for trial {trial}, whose parents are earlier trials"):
        asking([Proposal(OTHER, "m"), Proposal(POINT, "m", parents)]).ask(trial - 1, 2)


def test_a_parent_may_be_pending_or_before_it_in_its_batch():
    batch = [Proposal(OTHER, "m", range(2)), Proposal(POINT, "m", (1, 2))]
    assert [each.parents for each in asking(batch).ask(2, 2)] == [(0, 1), (1, 2)]


@pytest.mark.parametrize("answer", [None, 5, [Proposal(POINT, "m")] * 3, repeat(Proposal(POINT, "m"))])
def test_the_proposals_are_a_list_of_at_most_those_asked_for(answer):
    with pytest.raises(
        StrategyProblem, match=r"ask\(0, 2, 0\) answered .*Expected: a list of Proposal\(.*\), at most 2"
    ):
        asking(answer).ask(0, 2)


def test_the_values_become_plain():
    given = Proposal(POINT, np.str_("m"), [np.int64(0), np.int32(1)])
    for found in (*proposing(given).ask(2), *asking(iter([given])).ask(2)):
        assert found == Proposal(POINT, "m", (0, 1))
        assert type(found.operator) is str and [type(each) for each in found.parents] == [int, int]
    plain = Proposal(POINT, "m", (0,))
    assert asking([plain]).ask(2) == [plain] and asking([plain]).ask(2)[0].point.architecture is POINT.architecture
    assert asking([]).ask(2) == []


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(0), RecursionError("deep")])
@pytest.mark.parametrize(
    ("method", "call", "shown"),
    [
        ("ask", lambda made: made.ask(0), r"ask\(0, 1, 0\)"),
        ("propose", lambda made: made.ask(0), r"ask\(0, 1, 0\)"),
        ("start", lambda made: made.start(Started(1, POINT)), r"start\(Started\(1, \.\.\.\)\)"),
        ("tell", lambda made: made.tell(Result(1, 0, 2, POINT, (1.0,))), r"tell\(Result\(1, rung=0, \.\.\.\)\)"),
        ("learn", lambda made: made.tell(Result(1, 0, 2, POINT, (1.0,))), r"tell\(Result\(1, rung=0, \.\.\.\)\)"),
        ("failure_summary", lambda made: made.failure_summary(), r"failure_summary\(\)"),
    ],
)
def test_an_error_of_a_strategy_names_its_method_and_its_line(method, call, shown, error):
    def raises(self, *arguments, **named):
        raise error

    with pytest.raises(StrategyProblem, match=rf"The strategy 'mine' raised an error in {shown}:\nTraceback") as caught:
        call(checked(**{method: raises}))
    said = str(caught.value).splitlines()
    assert __file__ in said[2] and said[-1].startswith(type(error).__name__)


def test_errors_that_are_clear_stay_clear():
    def raises(error):
        def propose(self, *_):
            raise error

        return checked(propose=propose)

    with pytest.raises(NothingLeft, match=r"^nothing$"):
        raises(NothingLeft("nothing")).ask(0)
    with pytest.raises(SpaceError, match=r"^The strategy 'mine' in ask\(0, 1, 0\): width: 17 does not fit"):
        raises(SpaceError("width: 17 does not fit")).ask(0)


def test_how_architectures_failed_is_text_if_the_strategy_says_it():
    assert checked().failure_summary() == ""
    assert CheckedStrategy("mine", object(), SPACE).failure_summary() == ""
    with pytest.raises(StrategyProblem, match=r"failure_summary\(\) answered 5\. Expected: text"):
        checked(failure_summary=lambda self: 5).failure_summary()


def test_a_base_class_alone_says_what_it_expected(space):
    made = type("Mine", (StrategyBase,), {"propose": lambda *_: None})(space, seed=0)
    with pytest.raises(UsageError, match=r"^propose\(0, 0\) answered None\. Expected: a Proposal\("):
        made.ask(0)


@pytest.fixture
def registered():
    """`registered(**methods)`: registers random search with other methods as the strategy `mine` for one test."""

    def register(**methods):
        registry._things.pop("mine", None)
        strategy("mine")(type("Mine", (Random,), methods))

    yield register
    registry._things.pop("mine", None)


def later(answer):
    """A method `propose` that answers correctly for trial 0 alone."""

    def propose(self, rng, number, tried):
        return Proposal(self.space.sample(rng), "m") if number == 0 else answer(self.space.sample(rng))

    return propose


@pytest.mark.parametrize(
    "answer", [lambda point: Proposal(point, 5), lambda point: Proposal(point, "m", (None,)), lambda point: point]
)
def test_a_search_ends_with_the_error_and_goes_on_with_a_corrected_strategy(describe, search, registered, answer):
    registered(propose=later(answer))
    config = describe(strategy="mine", budget="{trials: 3}")
    with pytest.raises(UsageError, match=r"The strategy 'mine' broke its contract: propose\(1, 0\) answered "):
        search(config)
    registered(propose=later(lambda point: Proposal(point, "m", (np.int64(0),))))
    with search(config) as result:
        trials = result.store.trials(result.study.id)
        assert [trial.parents for trial in trials] == [(), (0,), (0,)]
        assert replay(result.store, result.study).same


def test_a_search_ends_with_the_error_of_a_strategy(describe, search, registered, monkeypatch):
    registered(learn=lambda self, result, failed: {}[result.number])
    config = describe(strategy="mine", budget="{trials: 2}")
    with pytest.raises(UsageError, match=r"strategy 'mine' raised an error in tell\(Result\(0, .*\)\):\nTraceback"):
        search(config)
    registered()
    with search(config) as result:
        assert [trial.rung for trial in result.store.trials(result.study.id)] == [0, 0]


def until(last):
    """A method `ask` that proposes nothing for the trials after `last`."""
    return lambda self, number, count=1, attempt=0: [] if number > last else Random.ask(self, number, count, attempt)


def test_a_search_whose_strategy_proposes_nothing_says_so_and_goes_on_with_a_corrected_one(
    describe, search, registered
):
    space = "{kind: decoder, width: !int [8, 4000], vocabulary: 256, position: none, body: {feed_forward: {expand: 1}}}"
    registered(ask=until(-1))
    config = describe(strategy="mine", budget="{trials: 3}", space=space)
    with pytest.raises(NasError, match=r"has no result\. The strategy proposed nothing, 500 times in a row\.$"):
        search(config)
    registered(ask=until(0))
    with search(config) as result:
        assert dict(result.header.lines())["trials"].startswith("1 of 3 planned started; the strategy proposed nothing")
    registered()
    with search(config) as result:
        assert result.header.lines()[0] == ("trials", "3 of 3 planned started; none failed")
