"""What a strategy, scheduler or task settles can be kept by a study and given to the constructor again."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from nas.errors import AnswerProblem, UsageError
from nas.own.settled import checked


def found(settled, make=lambda options: None):
    return checked("thing", "mine", SimpleNamespace(settled=settled), make)


@pytest.mark.parametrize("settled", [None, 5, [1], {5: 1}, {"a": 1, None: 2}])
def test_it_is_a_dict_with_names(settled):
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' broke its contract: settled answered .*: a dict of"):
        found(settled)


WRONG = [object(), float("nan"), float("inf"), {1, 2}, 2**63, 10**5000, "\ud800", {5: 1}, [b"a"], [float("nan")], 1j]
WRONG += [np.float64("nan"), np.longdouble(1), np.arange(2)]


@pytest.mark.parametrize("place", range(len(WRONG)))  # a whole number of 5,000 digits has no name
def test_a_value_is_the_same_after_json(place):
    with pytest.raises(
        AnswerProblem, match=r"^The thing 'mine' .*: settled\['start'\] answered .*: None, a bool, an int"
    ):
        found({"start": WRONG[place]})


def test_scalars_of_numpy_and_tuples_become_plain():
    given = {"a": np.int64(3), "b": (np.float32(0.5), np.bool_(True)), "c": {np.str_("d"): None}, "e": -(2**63)}
    plain = {"a": 3, "b": [0.5, True], "c": {"d": None}, "e": -(2**63)}
    assert found(given) == json.loads(json.dumps(found(given))) == plain
    assert checked("thing", "mine", object(), None) == {}


def test_the_constructor_accepts_it():
    def make(options):
        raise UsageError(f"no option {next(iter(options))!r}.")

    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' .*answered {'foo': 1}.*\(no option 'foo'\)\.$"):
        found({"foo": 1}, make)


def test_an_error_names_the_thing():
    def raises(self):
        raise KeyError("mine")

    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' raised an error in settled:\nTraceback"):
        checked("thing", "mine", type("Raises", (), {"settled": property(raises)})(), None)
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' raised an error in its constructor:\nTraceback"):
        found({"foo": 1}, lambda options: options["no such"])
