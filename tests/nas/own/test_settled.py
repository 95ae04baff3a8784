"""What a strategy, scheduler or task settles can be kept by a study and given to the constructor again."""

import enum
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field, SecretStr, TypeAdapter

from nas.errors import AnswerProblem, UsageError
from nas.own.settled import checked, names
from nas.registry import checked as options_of


class Mode(enum.Enum):
    A = "a"
    B = "b"


def found(settled, make=lambda options: None):
    return checked("thing", "mine", SimpleNamespace(settled=settled), make)


@pytest.mark.parametrize("settled", [None, 5, [1], {5: 1}, {"a": 1, None: 2}])
def test_it_is_a_dict_with_names(settled):
    with pytest.raises(AnswerProblem, match=r"^The thing 'mine' broke its contract: settled answered .*: a dict of"):
        found(settled)


def nested(depth):
    inner = []
    for _ in range(depth - 1):
        inner = [inner]
    return inner


CYCLE = []
CYCLE.append(CYCLE)
WRONG = [
    object(),
    float("nan"),
    -math.inf,
    10**5000,
    "\ud800",
    {5: 1},
    {Mode.A: 1},
    [b"\xff"],
    [float("nan")],
    CYCLE,
    iter("ab"),
]
WRONG += [
    np.float64("nan"),
    np.float32("inf"),
    np.longdouble(1),
    np.arange(2),
    nested(51),
    nested(300),
    nested(100_000),
]


@pytest.mark.parametrize("place", range(len(WRONG)))  # a whole number of 5,000 digits has no name
def test_a_value_that_json_does_not_give_back_is_rejected_in_one_sentence(place):
    with pytest.raises(
        AnswerProblem, match=r"^The thing 'mine' .*: settled\['start'\] answered .*: None, a bool"
    ) as said:
        found({"start": WRONG[place]})
    assert "\n" not in str(said.value) and str(said.value).endswith("nested at most 50 deep.")


def test_the_json_form_of_values_is_stored():
    given = {"a": np.int64(3), "b": (np.float32(0.5), np.bool_(True)), "c": {np.str_("d"): None}, "e": 10**400}
    given |= {
        "f": Mode.A,
        "g": Path("x"),
        "h": {1},
        "i": Decimal("1.50"),
        "k": MappingProxyType({"l": b"m"}),
    }
    stored = {"a": 3, "b": [0.5, True], "c": {"d": None}, "e": 10**400}
    stored |= {"f": "a", "g": "x", "h": [1], "i": "1.50", "k": {"l": "m"}}
    assert found(given | {"n": nested(50)}) == json.loads(json.dumps(stored | {"n": nested(50)}))
    assert checked("thing", "mine", object(), None) == {}


def typed(*, modes: dict[Mode, tuple[Path, ...]] = {}, numbers: set[str] | None = None) -> SimpleNamespace:  # noqa: B006
    return SimpleNamespace(settled={"modes": modes, "numbers": numbers})


def test_a_value_that_the_type_hint_makes_again_is_accepted():
    settled = {"modes": {Mode.B: (Path("x"), Path("y"))}, "numbers": {str(each) for each in range(100)}}
    stored = found(settled, lambda options: typed(**options_of(typed, options, "thing")))
    assert stored["modes"] == {"b": ["x", "y"]} and set(stored["numbers"]) == settled["numbers"]


def test_an_infinite_number_is_accepted_if_it_is_the_default():
    assert found({"limit": math.inf}, lambda options: SimpleNamespace(settled={"limit": math.inf})) == {"limit": None}


def test_a_value_that_the_constructor_changes_is_rejected():
    with pytest.raises(AnswerProblem, match=r"settled\['start'\] answered 5\. Expected: None"):
        found({"start": 5}, lambda options: SimpleNamespace(settled={"start": options["start"] + 1}))


class Partial(BaseModel):
    shown: int = 1
    hidden: str = Field("", exclude=True)


class Open(BaseModel, extra="allow"):
    shown: int = 1


@dataclass(eq=False)
class Plain:
    """Compared by its place in memory."""

    mode: Mode


@pytest.mark.parametrize("hint", [None, object, "its own"])
@pytest.mark.parametrize(
    "value", [SecretStr("hello"), [SecretStr("hello")], Partial(hidden="x"), Open(more=SecretStr("hello"))], ids=repr
)
def test_a_value_whose_json_form_leaves_something_out_is_rejected(value, hint):
    own = list[SecretStr] if isinstance(value, list) else type(value)
    made = TypeAdapter(own if hint == "its own" else hint or Any).validate_python
    with pytest.raises(AnswerProblem, match=r"settled\['word'\] answered \[?(SecretStr|Partial|Open)"):
        found({"word": value}, lambda options: SimpleNamespace(settled={"word": made(options["word"])}))


@pytest.mark.parametrize("hint", [Any, "its own"])
@pytest.mark.parametrize(
    "value", [Plain(Mode.B), Partial(shown=2), Open(more=2), Mode.A, {Mode.B}, Path("x"), np.datetime64("2020-01-02")]
)
def test_a_value_whose_json_form_is_whole_is_accepted_without_a_hint_too(value, hint):
    own = {set: set[Mode], np.datetime64: Any}.get(type(value), type(value))
    made = TypeAdapter(own if hint == "its own" else hint).validate_python
    assert found({"a": value}, lambda options: SimpleNamespace(settled={"a": made(options["a"])}))


def test_a_study_that_has_the_values_needs_the_names_alone():
    assert names("thing", "mine", SimpleNamespace(settled={"a": object(), "b": float("nan")})) == ["a", "b"]
    with pytest.raises(AnswerProblem, match="settled answered None"):
        names("thing", "mine", SimpleNamespace(settled=None))


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
