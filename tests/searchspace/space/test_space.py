"""Spaces: sampling, replay, constraints, and finding the point of an architecture."""

import json
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from searchspace.errors import SpaceError
from searchspace.language.holes import labels
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.space.space import Space

LAYERS = """
kind: decoder
width: !choice [12, 16]
vocabulary: 5
body:
  - repeat:
      times: !int [1, 3]
      of:
        - residual:
            norm: !choice {options: [layer_norm, rms_norm], name: norm}
            of: !choice
              each: true
              options:
                - attention: {heads: !choice [1, 2, 3]}
                - convolution: {kernel: !choice [3, 5]}
        - residual:
            norm: !same norm
            of: {feed_forward: {expand: !choice [1, 2]}}
constraints:
  parameters: {max: 4k}
"""


def first_of(path, hole):
    return labels(hole)[0] if hasattr(hole, "options") else hole.low


def test_each_hole_is_asked_for_once_and_in_the_order_of_the_file():
    asked = []

    def choose(path, hole):
        asked.append(path)
        return 2 if path.endswith("times") else first_of(path, hole)

    point = Space.parse(LAYERS).realise(choose)
    assert asked == list(point.choices)
    assert asked == [
        "width",
        "body[0].repeat.times",
        "body[0].repeat.of[0].residual.norm",
        "body[0].repeat@1.of[0].residual.of[0]",
        "body[0].repeat@1.of[0].residual.of[0]?attention.heads",
        "body[0].repeat.of[1].residual.of[0].feed_forward.expand",
        "body[0].repeat@2.of[0].residual.of[0]",
        "body[0].repeat@2.of[0].residual.of[0]?attention.heads",
    ]


def test_a_tie_may_stand_before_the_hole_it_is_tied_to():
    space = Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  - attention: {heads: !same heads}
  - attention: {heads: !choice {options: [2, 4], name: heads}}
""")
    point = space.point({"body[1].attention.heads": 4})
    assert [block.fields["heads"] for block in point.architecture.root.fields["body"]] == [4, 4]


def test_a_tied_subtree_is_the_same_with_all_that_was_drawn_in_it():
    space = Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  - !choice
    name: mixer
    options:
      - attention: {heads: !choice [1, 2]}
      - convolution: {kernel: !choice [3, 5]}
  - feed_forward
  - !same mixer
""")
    for point in space.enumerate():
        first, _, last = point.architecture.root.fields["body"]
        assert first == last


def test_copies_that_share_their_weights_have_one_draw():
    text = LAYERS.replace("times: !int [1, 3]", "times: 3\n      share_weights: !choice [true, false]")
    space = Space.parse(text)
    rng = random.Random(0)
    samples = [space.sample(rng, feasible=False) for _ in range(20)]
    shared = next(point for point in samples if point.choices["body[0].repeat.share_weights"])
    assert "body[0].repeat@1.of[0].residual.of[0]" in shared.choices
    assert "body[0].repeat@2.of[0].residual.of[0]" not in shared.choices
    assert shared.architecture.root.fields["body"][0].name == "repeat"


@given(rng=st.randoms(use_true_random=False))
def test_recorded_choices_survive_json_and_make_the_same_architecture(random_space, rng):
    space = random_space(rng, 10**9)
    assume(space is not None)
    point = space.sample(rng, feasible=False)
    again = space.point(json.loads(json.dumps(point.choices)))
    assert again.choices == point.choices
    assert again.architecture == point.architecture
    assert point.choices.keys() <= space.dimensions.keys()


@given(rng=st.randoms(use_true_random=False))
def test_locate_finds_every_architecture_that_the_space_makes(random_space, rng):
    space = random_space(rng, 10**9)
    assume(space is not None)
    point = space.sample(rng, feasible=False)
    assume(space.feasible(point))
    found = space.locate(point.architecture)
    assert found is not None
    assert found.architecture == point.architecture
    assert space.locate(Architecture.parse(point.architecture.text())) == found


@given(rng=st.randoms(use_true_random=False))
def test_an_architecture_of_another_space_is_contained_only_if_its_point_is_listed(random_space, rng):
    space, other = random_space(rng, 200), random_space(rng, 200)
    assume(space is not None and other is not None)
    architecture = other.sample(rng, feasible=False).architecture
    assume(not space.violations(architecture))
    assert space.contains(architecture) == any(architecture == point.architecture for point in space.enumerate())


def test_locate_reads_unrolled_layers_whatever_repeats_they_came_from():
    space = Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  - repeat: {times: !int [1, 9], of: [feed_forward, !choice [[], {convolution: {kernel: 3}}]]}
  - repeat: {times: !int [1, 9], of: {sequence: [feed_forward]}}
""")
    body = ["feed_forward", {"convolution": {"kernel": 3}}] * 4 + ["feed_forward"] * 3
    found = space.locate(Architecture.parse(json.dumps({"kind": "decoder", "width": 8, "vocabulary": 5, "body": body})))
    assert found is not None
    assert found.choices == {
        "body[0].repeat.times": 4,
        "body[0].repeat.of[1]": "convolution",
        "body[1].repeat.times": 3,
    }
    body.append({"convolution": {"kernel": 3}})
    other = Architecture.parse(json.dumps({"kind": "decoder", "width": 8, "vocabulary": 5, "body": body}))
    assert not space.contains(other)


def test_a_choice_that_does_not_fit_is_refused_with_its_path():
    space = Space.parse(LAYERS)
    choices = space.sample(random.Random(0)).choices
    with pytest.raises(SpaceError, match=r"width: 8 does not fit !choice \[12, 16\]"):
        space.point({**choices, "width": 8})
    with pytest.raises(SpaceError, match=r"width: nothing is chosen"):
        space.point({path: value for path, value in choices.items() if path != "width"})
    with pytest.raises(SpaceError, match=r"widht: no such hole is open here. Did you mean 'width'\?"):
        space.point({**choices, "widht": 8})
    with pytest.raises(SpaceError, match="True does not fit !int 1 to 3"):
        space.point({**choices, "body[0].repeat.times": True})


@pytest.mark.parametrize("by", ["choices", "architectures"])
def test_samples_build_and_meet_the_constraints(by):
    space, rng = Space.parse(LAYERS), random.Random(0)
    points = [space.sample(rng, by=by) for _ in range(30)]
    assert all(space.feasible(point) for point in points)
    loose = [space.sample(rng, by=by, feasible=False) for _ in range(60)]
    reasons = {violation.quantity for point in loose for violation in space.violations(point.architecture)}
    assert reasons == {"builds", "parameters"}  # three heads with width 16, and models of more than 4k parameters


def test_a_constraint_that_leaves_nothing_is_named_with_the_nearest_sample():
    space = Space.parse(LAYERS.replace("max: 4k", "max: 100"), "tiny.yaml")
    with pytest.raises(SpaceError) as caught:
        space.sample(random.Random(0), tries=200)
    [problem] = caught.value.problems
    assert problem.path == "constraints.parameters"
    assert (problem.mark.source, problem.mark.line) == ("tiny.yaml", 20)
    smallest = min(
        violation.value
        for point in space.enumerate()
        for violation in space.violations(point.architecture)
        if violation.quantity == "parameters"
    )
    assert "none of 200 samples is feasible; " in problem.message
    assert f"parameters must be at most 100, but is {smallest:,}" in problem.message


BOUNDED_BELOW = """
kind: decoder
width: !choice [8, 16, 32]
vocabulary: 16
body: {repeat: {times: !int [1, 4], of: {residual: {of: feed_forward}}}}
constraints: {%s: {min: %s, max: %s}}
"""


@pytest.mark.parametrize(
    ("quantity", "low", "high"),
    [("parameters", "4k", "20k"), ("flops", "5M", "40M"), ("training_flops", "15M", "120M")],
)
@pytest.mark.parametrize("by", ["choices", "architectures"])
def test_a_space_is_bounded_from_below_and_from_above(quantity, low, high, by):
    space, rng = Space.parse(BOUNDED_BELOW % (quantity, low, high)), random.Random(0)
    [bound] = space.constraints
    loose = [getattr(cost(point.architecture, length=space.length), quantity) for point in space.enumerate()]
    assert min(loose) < bound.low
    assert max(loose) > bound.high
    points = [space.sample(rng, by=by) for _ in range(20)]
    points += [space.mutate(point, rng) for point in points[:5]] + [space.crossover(*points[:2], rng)]
    assert all(
        bound.low <= getattr(cost(point.architecture, length=space.length), quantity) <= bound.high for point in points
    )


def test_a_minimum_that_no_sample_reaches_is_named_with_the_nearest():
    space = Space.parse(BOUNDED_BELOW % ("parameters", "1M", "2M"), "large.yaml")
    with pytest.raises(
        SpaceError, match=r"break parameters\. The nearest: parameters must be at least 1,000,000, but is"
    ):
        space.sample(random.Random(0), tries=50)


def test_a_space_in_which_nothing_builds_says_why():
    text = """
kind: decoder
width: !choice [8, 9]
vocabulary: 5
position: none
body: [attention: {heads: !choice [2, 4]}, linear_attention: {heads: 3}]
"""
    with pytest.raises(SpaceError, match=r"No combination of values is valid here\. For example: dim must be a mul"):
        Space.parse(text)


def test_a_space_of_which_no_sample_can_read_the_sequences_says_so():
    space = Space.parse("kind: decoder\nwidth: 8\nvocabulary: 5\nposition: {learned: {length: 4}}\nbody: feed_forward")
    with pytest.raises(SpaceError, match=r"none of 50 samples is feasible; 50 do not build.*at most 4 positions"):
        space.with_length(5).sample(random.Random(0), tries=50)


def test_state_bytes_are_counted_for_each_token_of_the_length():
    text = """
kind: decoder
width: 8
vocabulary: 5
body: {attention: {heads: 2}}
constraints: {state_bytes_per_token: {max: 60}}
"""
    space = Space.parse(text)
    point = space.sample(random.Random(0), feasible=False)
    [violation] = space.violations(point.architecture)
    assert (violation.quantity, violation.value, violation.bound) == ("state_bytes_per_token", 2 * 8 * 4, 60)
    window = Space.parse(text.replace("attention: {heads: 2}", "sliding_window_attention: {heads: 2, window: 16}"))
    point = window.sample(random.Random(0))  # a window of 16 has few bytes for each of 1,024 positions
    assert window.feasible(point)
    assert not window.with_length(8).feasible(point)


def test_a_space_prints_and_reads_back_as_the_same_space():
    space = Space.parse(LAYERS)
    again = Space.parse(space.text())
    assert (again.root, again.constraints) == (space.root, space.constraints)


def test_ties_out_of_reach_of_a_copys_own_draw_are_refused():
    with pytest.raises(SpaceError, match="copy"):
        Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  - repeat: {times: 2, of: {attention: {heads: !choice {options: [1, 2], each: true, name: heads}}}}
  - attention: {heads: !same heads}
""")


def test_labels_stay_when_options_are_appended_or_reordered():
    one = Space.parse(LAYERS)
    two = Space.parse(
        LAYERS.replace("[layer_norm, rms_norm]", "[none, rms_norm, layer_norm]").replace("[3, 5]", "[7, 5, 3]")
    )
    for seed in range(20):
        point = one.sample(random.Random(seed))
        assert two.point(point.choices).architecture == point.architecture


def test_numbers_far_too_large_to_list_are_no_trouble():
    space = Space.parse("""
kind: decoder
width: !int [2, 1000000000000]
vocabulary: 5
dropout: !float {low: 0.0, high: 0.5, step: 1e-12}
body:
  repeat: {times: !int [1, 1000000000], share_weights: true, of: feed_forward}
""")
    assert space.size().points == (10**12 - 1) * (5 * 10**11 + 1) * 10**9
    point = space.sample(random.Random(0), feasible=False)
    assert space.point(point.choices) == point
    assert space.locate(point.architecture).choices == point.choices


def test_a_model_too_large_to_write_out_is_not_feasible():
    space = Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  repeat: {times: !choice [1, 1000000], of: feed_forward}
""")
    assert {space.sample(random.Random(seed)).choices["body[0].repeat.times"] for seed in range(9)} == {1}


def test_copies_with_holes_of_their_own_are_bounded():
    with pytest.raises(SpaceError, match=r"body\[0\].repeat: at most 256 copies .* there are 1000"):
        Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  repeat: {times: !int [1, 1000], of: {convolution: {kernel: !choice {options: [1, 2], each: true}}}}
""")
