"""One hole: its values, and the position of a number between its ends."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from searchspace.errors import SpaceError
from searchspace.language.holes import admits, draw, from_unit, labels, option, unit, values
from searchspace.tree import Block, Choice, Floats, Integers, Same

INTEGERS = st.builds(
    lambda low, count, step, log: Integers(low, low + count * step, step, log),
    st.integers(1, 50), st.integers(0, 40), st.integers(1, 7), st.booleans(),
)  # fmt: skip
FLOATS = st.builds(
    lambda low, count, step, log: Floats(low / 100, (low + count * step) / 100, step / 100, log),
    st.integers(1, 50), st.integers(0, 40), st.integers(1, 7), st.booleans(),
)  # fmt: skip
INTERVALS = st.builds(
    lambda low, width, log: Floats(low, low + width, None, log), st.floats(0.1, 9), st.floats(0, 9), st.booleans()
)


@given(hole=INTEGERS | FLOATS | INTERVALS, seed=st.integers(0, 10**6))
def test_what_is_drawn_fits_and_has_a_place_between_the_ends(hole, seed):
    value = draw(hole, random.Random(seed))
    assert admits(hole, value)
    assert 0 <= unit(hole, value) <= 1 + 1e-9
    assert from_unit(hole, unit(hole, value)) == pytest.approx(value, rel=1e-5)


@given(hole=INTEGERS | FLOATS)
def test_a_listed_number_is_found_again_from_its_place(hole):
    for value in values(hole):
        assert admits(hole, value)
        assert from_unit(hole, unit(hole, value)) == value
        assert values(hole)[values(hole).index(value)] == value


def test_steps_are_decimal_and_end_within_the_range():
    assert list(values(Floats(0.0, 0.35, step=0.1))) == [0.0, 0.1, 0.2, 0.3]
    assert not admits(Floats(0.0, 1.0, step=0.1), 0.1 + 0.2)


def test_logarithmic_integers_are_drawn_in_proportion_to_their_share_of_the_logarithm():
    hole, rng = Integers(1, 8, log=True), random.Random(0)
    draws = Counter(draw(hole, rng) for _ in range(4000))
    shares = [math.log((v + 1) / v) / math.log(9) for v in range(1, 9)]
    assert chisquare([draws[v] for v in range(1, 9)], [4000 * share for share in shares]).pvalue > 1e-3


def test_labels_are_names_and_values_all_different():
    attention, other = Block("attention", {"heads": 1}), Block("attention", {"heads": 2})
    choice = Choice((True, 1, None, "attention", attention, other, (attention, Same("x")), ()))
    assert labels(choice) == (
        True, 1, None, "attention", "attention#2", "attention#3", "attention+same x", "empty",
    )  # fmt: skip
    assert option(choice, "attention#3") is other
    assert option(choice, 1) == 1 and option(choice, True) is True


def test_an_unknown_label_is_refused_with_the_nearest_one():
    with pytest.raises(SpaceError, match=r"'rms' is not one of 'layer_norm', 'rms_norm'. Did you mean 'rms_norm'\?"):
        option(Choice(("layer_norm", "rms_norm")), "rms")


@pytest.mark.parametrize("value", [True, 2.0, 0, 5, "2", None])
def test_an_integer_hole_takes_whole_numbers_on_its_grid_alone(value):
    assert not admits(Integers(2, 6, step=2), value)


def test_labels_of_very_many_equal_words_are_numbered_in_order():
    """Each label searched for its number from the start: 9,000 options took 15 s."""
    options = tuple(Block("convolution", {"kernel": index}) for index in range(20_000))
    assert labels(Choice(options))[-1] == "convolution#20000"
    assert labels(Choice(("convolution#2", *options[:2]))) == ("convolution#2", "convolution", "convolution#3")
