"""Strategies by name, and the messages for an unknown name or an invalid option."""

import pytest

from nas.errors import UsageError
from nas.registry import Registry
from nas.strategies.registry import make, strategies


def test_finds_every_strategy_by_itself():
    assert {"aging_evolution", "nsga2", "optuna", "random"} <= set(strategies())


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("nsga4", {}, r"No strategy is called 'nsga4'\. Did you mean 'nsga\d'\? Known: aging_evolution, auto, local"),
        ("nsga2", {"poplation": 3}, r"has no option 'poplation'\. Did you mean 'population'\? Its options: population"),
        ("nsga2", {"population": 1}, "option 'population': must be greater than or equal to 2, but got 1"),
        ("nsga2", {"crossover": "often"}, "option 'crossover': must be a valid number.* but got 'often'"),
        ("random", {"by": "chance"}, "option 'by': must be 'choices' or 'architectures'.* but got 'chance'"),
        ("random", {"seed": 3}, "has no option 'seed'"),
    ],
)
def test_says_what_is_wrong_with_a_description(name, options, message, space):
    with pytest.raises(UsageError, match=message):
        make(name, space, 0, 1, **options)


def test_two_classes_cannot_share_a_name():
    registry = Registry("thing", "nas.strategies")
    registry.register("one")(int)
    with pytest.raises(ValueError, match="The thing 'one' is defined twice"):
        registry.register("one")(float)


def test_refuses_a_bare_option_where_there_is_none():
    registry = Registry("thing", "nas.strategies")

    class Plain:
        def __init__(self): ...

    registry.register("plain")(Plain)
    with pytest.raises(UsageError, match="thing 'plain' takes no options, but got 3"):
        registry.make("plain", {}, {"": 3})
