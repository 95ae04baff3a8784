"""A space with many combinations is not listed for a call that is known."""

import pytest

from tuner.triton import large_space, tuned_kernel
from tuner.triton.large_space import Combinations, is_large

triton = pytest.importorskip("triton")

from scaled_kernel import ARGUMENTS, BLOCKS, Pretended, allowed, call, tuned  # noqa: E402, F401

SPACE = {"BLOCK": BLOCKS, "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3]}


@pytest.fixture
def small(monkeypatch):
    """Spaces of this size count as large, and few configurations are measured."""
    monkeypatch.setattr(large_space, "LARGE", 10)
    monkeypatch.setitem(tuned_kernel.EVALUATIONS, "quick", 4)


def test_a_known_call_of_a_large_space_lists_nothing(tmp_path, small):
    seen = []

    def constraint(values):
        seen.append(values["BLOCK"])
        return values["BLOCK"] >= 16 * values["num_warps"] / 8 and values["size"] > 0

    first = tuned(tmp_path, space=SPACE, constraints=[constraint])
    call(first)
    assert len(seen) >= 48

    seen.clear()
    second = tuned(tmp_path, clock=Pretended({}), space=SPACE, constraints=[constraint])
    call(second)
    assert len(seen) < 10
    assert second.best_config == first.best_config


def test_another_constraint_default_or_argument_is_another_space(tmp_path):
    def made(constraints=(), default=None, **arguments):
        return Combinations(SPACE, constraints, default or {}, arguments).signature

    some = [
        made(),
        made(default={"BLOCK": 32}),
        made([lambda values: values["BLOCK"] > 16]),
        made([lambda values: values["BLOCK"] > 32]),
        made([lambda values: values["BLOCK"] > values["size"]], size=1),
        made([lambda values: values["BLOCK"] > values["size"]], size=2),
    ]
    assert len(set(some)) == len(some)
    assert made() == made() == made(size=3), "nothing looks at the argument"


def test_a_choice_is_found_by_its_number_and_the_number_by_the_choice():
    found = Combinations(SPACE, [lambda values: values["num_warps"] < 8], {"BLOCK": 64}, {})
    choices = list(found)

    assert len(choices) == len(found) == 36
    assert [found.number(each) for each in choices] == list(range(36))
    assert found[found.default].kwargs == {"BLOCK": 64}
    with pytest.raises(ValueError, match="reject the default"):
        Combinations(SPACE, [lambda values: values["BLOCK"] < 64], {"BLOCK": 64}, {})


def test_only_plain_values_can_be_given_back():
    assert is_large({name: list(range(20)) for name in "abc"})
    assert not is_large({"a": list(range(5000)), "b": [object()]})
    assert not is_large(SPACE)
