"""The types of options: what every option of every registry refuses."""

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from nas.callbacks.registry import registry as callbacks
from nas.criteria.registry import registry as criteria
from nas.errors import UsageError
from nas.exports.registry import registry as formats
from nas.objectives.registry import registry as objectives
from nas.options import MOST, Fraction, Names, Number, Positive, Rungs, Start, Steps, Trials
from nas.runners.registry import registry as runners
from nas.schedulers.registry import registry as schedulers
from nas.strategies.registry import registry as strategies
from nas.tasks.registry import registry as tasks
from nas.training.optimisers.registry import registry as optimisers
from nas.training.schedules.registry import registry as schedules
from tuner.strategies import STRATEGIES

INFINITE, NOT_A_NUMBER = float("inf"), float("nan")
REGISTRIES = (
    *(strategies, schedulers, tasks, objectives, criteria, optimisers, schedules, runners),
    *(callbacks, formats, STRATEGIES),
)
CHECKED_BY_ITSELF = (STRATEGIES, "optuna", "sampler")  # a class or its name; Optuna is imported when it is used
OPTIONS = [
    found
    for each in REGISTRIES
    for name in each.names()
    for option in each.options(name)
    if (found := (each, name, option)) != CHECKED_BY_ITSELF
]


def accepts(registry, name, option, value):
    """Whether this option has this value; other options may be missing."""
    with pytest.raises(UsageError) as caught:
        registry.check(name, {option: value, "no such option": 0})
    return f"option {option!r}" not in str(caught.value) and f"option '{option}." not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [INFINITE, -INFINITE, NOT_A_NUMBER, [INFINITE] * 2, {"x": INFINITE}, 10**400],
    ids=["infinite", "minus-infinite", "nan", "list", "mapping", "more-than-a-float"],
)
def test_no_option_takes_an_infinite_number(value):
    assert not [(each.kind, name, option) for each, name, option in OPTIONS if accepts(each, name, option, value)]


def test_no_count_takes_a_number_of_thirty_digits_or_true():
    counts = [found for found in OPTIONS if accepts(*found, 64) and not accepts(*found, 64.5)]

    assert len(counts) > 60
    assert not [found[1:] for found in counts if accepts(*found, 10**30) or accepts(*found, True)]
    assert not [found[1:] for found in counts if not accepts(*found, 64.0)], "as everywhere in a search file"


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (Positive, 0, "greater than or equal to 1"),
        (Positive, MOST + 1, f"less than or equal to {MOST}"),
        (Positive, 8.5, "a valid integer"),
        (Positive, "8", "a valid integer"),
        (Positive, True, "a valid integer"),
        (Annotated[Positive, Field(ge=8, le=10)], 7, "greater than or equal to 8"),
        (Annotated[Positive, Field(ge=8, le=10)], 11, "less than or equal to 10"),
        (Trials, 10**7, "less than or equal to 1000000"),
        (Start, "never", "'auto'"),
        (Start, 2.5, "a valid integer"),
        (Rungs, [2.5, 4.0], "a valid integer"),
        (Rungs, ["2", "4"], "a valid integer"),
        (Rungs, [True, 4], "a valid integer"),
        (Rungs, [], "at least 1 item"),
        (Number, "3e-3", "a valid number"),
        (Number, -1e-9, "greater than or equal to 0"),
        (Number, INFINITE, "a finite number"),
        (Fraction, 1.5, "less than or equal to 1"),
        (Fraction, NOT_A_NUMBER, "a finite number"),
        (Names, ["a", "a"], "must name each of them once"),
        (Names, [""], "at least 1 character"),
        (Names, 3, "must be a name or a list of names"),
    ],
    ids=lambda value: str(value) if isinstance(value, str | int | float) else None,
)
def test_a_type_refuses(hint, value, message):
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(hint).validate_python(value)


def test_a_type_accepts_what_is_in_its_range():
    accepted = [
        (Positive, 1, 1), (Positive, MOST, MOST), (Start, "auto", "auto"), (Start, 3, 3), (Rungs, [2, 4], (2, 4)),
        (Steps, 8.0, 8), (Start, 3.0, 3), (Rungs, [2e0, 4e0], (2, 4)),
        (Number, 1, 1.0), (Fraction, 1, 1.0), (Names, "a", ("a",)), (Names, ["a", "b"], ("a", "b")),
    ]  # fmt: skip
    assert [TypeAdapter(hint).validate_python(value) for hint, value, _ in accepted] == [each[2] for each in accepted]
