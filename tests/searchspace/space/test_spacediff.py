"""What one space adds to another and removes, and whether it is larger."""

import itertools
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from searchspace.space.space import Space
from searchspace.space.spacediff import diff

OLD = """
kind: decoder
width: !choice [8, 16]
vocabulary: 5
body:
  - repeat:
      times: !int [1, 3]
      of:
        - residual:
            norm: rms_norm
            of: !choice
              - attention: {heads: !choice {options: [1, 2], name: heads}}
              - convolution: {kernel: 3}
        - feed_forward
constraints:
  parameters: {min: 10, max: 5k}
"""
TIED = """
kind: decoder
width: 8
vocabulary: 5
body:
  - attention: {heads: !choice {options: [1, 2], name: heads}}
  - attention: {heads: !same heads}
"""
MIXER = "body[0].repeat.of[0].residual.of[0]"

LARGER = [
    ("[8, 16]", "[16, 24, 8]", "width: option 24"),
    ("[1, 3]", "[1, 6]", "body[0].repeat.times: !int 1 to 3 is now !int 1 to 6"),
    ("!int [1, 3]", "!choice [1, 2, 3, 8]", "body[0].repeat.times: !int 1 to 3 is now !choice [1, 2, 3, 8]"),
    ("norm: rms_norm", "norm: !choice [layer_norm, rms_norm]",
     "body[0].repeat.of[0].residual.norm: rms_norm is now !choice [layer_norm, rms_norm]"),
    ("kernel: 3", "kernel: !int [1, 9]", f"{MIXER}?convolution.kernel: 3 is now !int 1 to 9"),
    ("              - convolution: {kernel: 3}",
     "              - convolution: {kernel: 3}\n              - [convolution: {kernel: 1}, feed_forward]",
     f"{MIXER}: option convolution+feed_forward"),
    ("        - feed_forward", "        - feed_forward\n        - !choice [[], {convolution: {kernel: 5}}]",
     "body[0].repeat.of[2]: !choice [empty, convolution]"),
    ("name: heads", "name: heads, each: true", f"{MIXER}?attention.heads: filled for each copy"),
    ("max: 5k", "max: 6k", "constraints.parameters.max: 5,000 is now 6,000"),
    ("min: 10", "min: 5", "constraints.parameters.min: 10 is now 5"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "line"), LARGER, ids=[line.split(":")[0] for _, _, line in LARGER])
def test_a_change_that_only_adds_makes_a_larger_space_and_its_reverse_a_smaller_one(before, after, line):
    assert before in OLD
    old, new = Space.parse(OLD), Space.parse(OLD.replace(before, after))
    change, back = diff(old, new), diff(new, old)
    assert change.added == (line,)
    assert change.removed == ()
    assert change.larger
    assert back.removed
    assert not back.larger


def test_every_point_of_a_space_is_in_a_larger_one():
    old = Space.parse(OLD)
    for before, after, _ in LARGER:
        new = Space.parse(OLD.replace(before, after))
        for point in itertools.islice(old.enumerate(), 0, None, 7):
            if old.feasible(point):
                assert new.feasible(new.locate(point.architecture))


def test_equal_spaces_differ_in_nothing():
    change = diff(Space.parse(OLD), Space.parse(OLD))
    assert (change.added, change.removed, change.renamed, change.larger) == ((), (), (), True)


def test_a_new_name_and_a_new_place_are_renamings():
    renamed = diff(Space.parse(TIED), Space.parse(TIED.replace(" heads}", " h}").replace("name: heads", "name: h")))
    assert renamed.renamed == ("body[0].attention.heads: 'heads' is now called 'h'",)
    assert renamed.larger
    moved = diff(Space.parse(OLD), Space.parse(OLD.replace("body:\n", "body:\n  - !choice [[], feed_forward]\n")))
    assert "body[0].repeat.times is now body[1].repeat.times" in moved.renamed
    assert moved.larger


def test_a_block_that_becomes_an_option_moves_the_holes_in_it():
    old = Space.parse("{kind: decoder, width: 8, vocabulary: 5, body: {attention: {heads: !choice [1, 2]}}}")
    new = Space.parse(
        "{kind: decoder, width: 8, vocabulary: 5, "
        "body: !choice [feed_forward, {attention: {heads: !choice [1, 2, 4]}}]}"
    )
    change = diff(old, new)
    assert change.renamed == ("body[0].attention.heads is now body[0]?attention.heads",)
    assert change.added == (
        "body[0]: attention is now !choice [feed_forward, attention]",
        "body[0]?attention.heads: option 4",
    )
    assert change.larger


def test_untying_adds_and_tying_takes_away():
    old, new = Space.parse(TIED), Space.parse(TIED.replace("!same heads", "!choice [1, 2]"))
    assert diff(old, new).larger
    assert diff(old, new).added == ("body[1].attention.heads: !choice [1, 2], no longer tied to 'heads'",)
    assert not diff(new, old).larger


def test_another_kind_of_block_is_removed_and_added():
    change = diff(Space.parse(OLD), Space.parse(OLD.replace("feed_forward", "gated_feed_forward")))
    assert change.removed == ("body[0].repeat.of[1]: feed_forward",)
    assert change.added == ("body[0].repeat.of[1]: gated_feed_forward",)
    assert not change.larger


def test_another_kind_of_model_is_removed_and_added():
    change = diff(Space.parse(OLD), Space.parse(OLD.replace("kind: decoder", "kind: encoder")))
    assert (change.removed, change.added) == (("kind: decoder",), ("kind: encoder",))


@given(rng=st.randoms(use_true_random=False))
def test_a_space_called_larger_holds_every_point(random_space, rng):
    old, new = random_space(rng, 60), random_space(rng, 2000)
    assume(old is not None and new is not None)
    assert diff(old, old).larger
    if diff(old, new).larger:
        points = [point for point in old.enumerate() if old.feasible(point)]
        assert all(new.contains(point.architecture) for point in random.Random(0).sample(points, min(9, len(points))))
