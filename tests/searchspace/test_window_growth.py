"""Windows that grow with depth equal copies that are written by hand, in models and in spaces."""

import random

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from searchspace import window_growth
from searchspace.contract import Context, Given
from searchspace.cost import Shape
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.model.drawing import draw
from searchspace.parts import Part
from searchspace.registry import configure
from searchspace.space.space import Space
from searchspace.tree import Block, Choice, Integers, Value

HEAD = "kind: decoder\nwidth: 8\nvocabulary: 5\nbody:\n"
BODY = "[{sliding_window_attention: {heads: 2, window: 4}}, feed_forward]"
GROWING = f"{{repeat: {{times: 3, window_growth: 2, of: {BODY}}}}}"
BY_HAND = "".join(
    f"  - sliding_window_attention: {{heads: 2, window: {window}}}\n  - feed_forward\n" for window in (4, 8, 16)
)


def cost_by_part(architecture):
    whole = Part(name="model", shape=Shape(), block=architecture.configured)
    return [leaf for part in whole.below() for leaf in part.leaves()]


def test_growth_writes_out_copies_with_windows_of_their_own():
    grown, by_hand = Architecture.parse(f"{HEAD}  - {GROWING}"), Architecture.parse(HEAD + BY_HAND)
    assert grown == by_hand
    assert grown.hash == by_hand.hash
    assert Architecture.parse(grown.text()) == grown
    assert cost(grown, length=64) == cost(by_hand, length=64)
    assert cost_by_part(grown) == cost_by_part(by_hand)
    assert draw(grown) == draw(by_hand)
    assert [block.config.window for block in build(grown).body if hasattr(block, "config")] == [4, 8, 16]


def test_without_growth_nothing_changes():
    plain = f"{HEAD}  - {GROWING.replace('window_growth: 2, ', '')}"
    assert Architecture.parse(plain).hash == Architecture.parse(plain.replace("times", "window_growth: 1, times")).hash


def test_repeats_within_repeats_multiply():
    inner = "{repeat: {times: 2, window_growth: 3, of: {sliding_window_attention: {window: 2}}}}"
    outer = Architecture.parse(f"{HEAD}  - repeat: {{times: 2, window_growth: 5, of: {{residual: {{of: {inner}}}}}}}")
    windows = [[b.fields["window"] for b in r.fields["of"]] for r in outer.root.fields["body"]]
    assert windows == [[2, 6], [10, 30]]


def test_a_repeat_that_is_configured_as_it_stands_builds_and_costs_the_same():
    body = (Block("sliding_window_attention", {"heads": 2, "window": 4}), Block("feed_forward", {}))
    fields = {"times": 3, "window_growth": 2, "of": body}
    configured = configure(Block("repeat", fields), Given(dim=8, causal=True))
    module, shape = configured.build(), Shape(length=64)
    assert [stack[0].config.window for stack in module.of] == [4, 8, 16]
    copies = window_growth.grown(body, 1) + window_growth.grown(body, 2) + window_growth.grown(body, 4)
    by_hand = configure(Block("sequence", {"of": copies}), Given(dim=8, causal=True))
    assert configured.cost(shape) == by_hand.cost(shape)
    assert configured.cost(shape).parameters == sum(parameter.numel() for parameter in module.parameters())
    written, x = by_hand.build(), torch.randn(1, 40, 8)
    written.load_state_dict(dict(zip(written.state_dict(), module.state_dict().values(), strict=True)))
    torch.testing.assert_close(module(x, Context()), written(x, Context()))


REFUSED = [
    ("{repeat: {times: 2, window_growth: 2, of: attention}}", "none of them has it"),
    ("{repeat: {times: !int [1, 3], window_growth: 2, of: attention}}", "none of them has it"),
    ("{repeat: {times: 2, window_growth: !choice [2, 3], of: [!choice [attention, feed_forward]]}}", "none of them"),
    (GROWING.replace("times", "share_weights: true, times"), "window_growth must be 1 where weights are shared"),
    (GROWING.replace("growth: 2", "growth: 0"), "window_growth must be at least 1, but got 0"),
    (GROWING.replace("times: 3", "times: 40"), "longer than any sequence"),
    (GROWING.replace("times: 3", "times: 9000"), "longer than any sequence"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refuses_growth_that_makes_no_sense(body, message):
    with pytest.raises(SpaceError, match=message):
        Space.parse(f"{HEAD}  - {body}")


@pytest.mark.parametrize("whole", [Architecture.from_block, Space])
def test_a_tree_made_by_a_program_is_held_to_the_same(whole):
    repeat = Block("repeat", {"times": 2, "window_growth": 2, "of": (Block("attention", {}),)})
    with pytest.raises(SpaceError, match="none of them has it"):
        whole(Block("decoder", {"width": 8, "vocabulary": 5, "body": (repeat,)}))


def test_a_point_without_a_window_is_as_good_as_any_where_other_points_have_one():
    space = Space.parse(f"""{HEAD}
  - repeat:
      times: 2
      window_growth: !choice [1, 2]
      of: !choice [attention, {{sliding_window_attention: {{window: 4}}}}]
""")
    assert space.size().points == 4
    assert space.distinct() == 3
    assert all(space.feasible(point) for point in space.enumerate())


def test_a_copy_that_draws_nothing_still_counts():
    space = Space.parse(f"""{HEAD}
  - repeat:
      times: 3
      window_growth: 2
      of: !choice {{each: true, options: [[], {{sliding_window_attention: {{window: 4}}}}]}}
""")
    windows = {tuple(block.fields.get("window") for block in point.architecture.root.fields["body"]) for point in
               space.enumerate()}  # fmt: skip
    assert windows == {(), (4,), (8,), (16,), (4, 8), (4, 16), (8, 16), (4, 8, 16)}


def test_locate_finds_the_window_and_the_growth_behind_what_was_written_out():
    space = Space.parse(f"""{HEAD}
  - repeat:
      times: !int [1, 9]
      window_growth: !int [1, 1000000000]
      of: [{{sliding_window_attention: {{heads: 2, window: !int [1, 100]}}}}, feed_forward]
""")
    found = space.locate(Architecture.parse(HEAD + BY_HAND))
    assert found is not None
    assert found.choices["body[0].repeat.window_growth"] == 2
    assert found.choices["body[0].repeat.of[0].sliding_window_attention.window"] == 4
    assert not space.contains(Architecture.parse(HEAD + BY_HAND.replace("window: 16", "window: 15")))


def _item(rng: random.Random, depth: int, each: bool) -> Value:
    """A random block: with a window, without one, a choice of both, or a repeat with growth."""
    windows: Value = rng.choice([1, 2, 4, Choice((1, 2, 6), each=each and rng.random() < 0.5), Integers(2, 3)])
    window, plain = Block("sliding_window_attention", {"window": windows}), Block("feed_forward", {})
    kinds = [window, plain, Choice((window, plain), each=each and rng.random() < 0.5), Choice(((), window))]
    if depth and rng.random() < 0.7:
        growth = rng.choice([1, 2, 3, Choice((1, 2), each=each and rng.random() < 0.3), Integers(1, 2)])
        shared = rng.choice([False, False, Choice((False, True))])
        of = tuple(_item(rng, depth - 1, True) for _ in range(rng.randint(1, 2)))
        fields = {"times": rng.choice([1, 2, Integers(1, 3)]), "window_growth": growth, "share_weights": shared}
        return Block("repeat", {**fields, "of": of})
    return Block("residual", {"of": (rng.choice(kinds),)}) if rng.random() < 0.3 else rng.choice(kinds)


def _space(rng: random.Random, most: int) -> Space | None:
    body = tuple(_item(rng, 2, False) for _ in range(rng.randint(1, 2)))
    try:
        space = Space(Block("decoder", {"width": 8, "vocabulary": 5, "body": body}))
    except SpaceError as error:
        assert all("none of them has it" in str(problem) for problem in error.problems)
        return None
    return space if space.size().discrete <= most else None


@given(rng=st.randoms(use_true_random=False))
def test_what_holds_for_every_space_holds_where_windows_grow(rng):
    space = _space(rng, 10**9)
    assume(space is not None)
    point = space.sample(rng, feasible=False, by=rng.choice(["choices", "architectures"]))
    assert space.point(point.choices).architecture == point.architecture
    assert point.choices.keys() <= space.dimensions.keys()
    assume(space.feasible(point))
    assert Architecture.parse(point.architecture.text()) == point.architecture
    found = space.locate(point.architecture)
    assert found is not None
    assert found.architecture == point.architecture


@given(rng=st.randoms(use_true_random=False))
def test_size_counts_the_points_where_windows_grow(rng):
    space = _space(rng, 200)
    assume(space is not None)
    points = list(space.enumerate())
    assert space.size().points == len(points) == len({tuple(point.choices.items()) for point in points})


@given(rng=st.randoms(use_true_random=False), factor=st.integers(1, 5))
def test_shrunk_undoes_grown(rng, factor):
    space = _space(rng, 10**9)
    assume(space is not None)
    root = space.sample(rng, feasible=False).architecture.root
    grown = window_growth.grown(root, factor)
    assert window_growth.shrunk(grown, factor) == root
    assert window_growth.largest_window(grown) == factor * window_growth.largest_window(root)
