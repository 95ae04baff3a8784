"""Invalid values are rejected when a space is read, with place and reason; sampling avoids the other combinations."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace.errors import SpaceError
from searchspace.language import fitting
from searchspace.space.space import Space
from searchspace.tree import Block, Choice

MODEL = "kind: {kind}\nwidth: {width}\nvocabulary: 9\nbody:\n  residual: {{of: {of}}}\n"
TABLE = "kind: decoder\nwidth: 8\nvocabulary: 9\nposition: {learned: {length: !choice [64, 256]}}\nbody: feed_forward\n"


def space(of: str, width: str = "!choice [64, 80]", kind: str = "decoder") -> Space:
    return Space.parse(MODEL.format(kind=kind, width=width, of=of), "a.yaml")


@pytest.mark.parametrize(
    ("of", "where", "reason"),
    [
        (
            "{attention: {heads: !choice [7, 3]}}",
            "a.yaml:5: body.residual.of.attention",
            "No combination of values is valid here. For example: dim must be a multiple of heads",
        ),
        ("{attention: {heads: 7}}", "a.yaml:5: body.residual.of.attention", "dim must be a multiple of heads"),
        (
            "!choice [attention, bigbird_attention: {heads: !choice [2, 4]}]",
            r"body.residual.of\[1\].bigbird_attention",
            "bigbird_attention looks ahead, so it cannot be part of a decoder",
        ),
        (
            "{attention: {heads: !choice [2, 4], over: memory}}",
            "body.residual.of.attention",
            "No combination of values is valid here. For example: .*this model has no encoder",
        ),
        (
            "{compressive_attention: {segment: !choice [16, 32], memory: 16, rate: !choice [3, 5]}}",
            "body.residual.of.compressive_attention",
            "For example: segment must be a multiple of rate",
        ),
        (
            "{nadaraya_watson: {kernel: boxcar, project: true, learned: !choice [head, dimension]}}",
            "body.residual.of.nadaraya_watson",
            "For example: a boxcar passes no gradient",
        ),
    ],
)
def test_a_block_that_no_architecture_could_have_is_refused(of: str, where: str, reason: str) -> None:
    with pytest.raises(SpaceError, match=f"{where}: .*{reason}"):
        space(of)


@pytest.mark.parametrize(
    ("of", "width", "position", "where", "message"),
    [
        (
            "{attention: {heads: !choice [4, 3]}}", "64", "none", "6: body.residual.of.attention.heads",
            "3 is {}dim must be a multiple of heads, but got dim=64, heads=3. "
            "Valid values: 2, 4.",
        ),
        (
            "{attention: {heads: !int [1, 8]}}", "!choice [64, 96]", "none", "6: body.residual.of.attention.heads",
            "5, 7 are {}dim must be a multiple of heads, but got dim=64, heads=5. "
            "Valid values: 4, 6, 3, 2, 8, 1.",
        ),
        (
            "{attention: {heads: !choice [2, 4]}}", "!choice [64, 65]", "none", "2: width",
            "65 is {}dim must be a multiple of heads, but got dim=65, heads=2. "
            "Valid values: 64, 66.",
        ),
        (
            "{attention: {heads: !choice [4, 64]}}", "64", "rotary", "6: body.residual.of.attention.heads",
            "64 is {}attention with dim=64, heads=64: Rotary positions rotate "
            "pairs, so a head's width must be even, but it is 1. Valid values: 32, 4.",
        ),
        (
            "{attention: {heads: 64}}", "64", "!choice [alibi, rotary]", "4: position",
            "'rotary' is {}body[0].of[0]: attention with dim=64, heads=64: Rotary positions "
            "rotate pairs, so a head's width must be even, but it is 1. Valid values: 'alibi'.",
        ),
        (
            "{repeat: {times: 2, signal: !choice [none, step], of: !choice [feed_forward, attention]}}", "8", "none",
            "6: body.residual.of.repeat.signal", "'step' is {}signal must be",
        ),
        (
            "!choice [attention, []]", "8", "none", "6: body.residual.of",
            "'empty' is {}of must hold at least one block",
        ),
        (
            "{attention: {dropout: !float [0.0, 1.0]}}", "8", "none", "6: body.residual.of.attention.dropout",
            "1.0 is {}dropout must lie in [0, 1), but got 1.0.",
        ),
    ],
)  # fmt: skip
def test_a_value_that_no_architecture_could_have_is_refused_with_what_would_fit(
    of: str, width: str, position: str, where: str, message: str
) -> None:
    text = MODEL.replace("body:", f"position: {position}\nbody:")
    with pytest.raises(SpaceError) as caught:
        Space.parse(text.format(kind="decoder", width=width, of=of), "a.yaml")
    [problem] = caught.value.problems
    assert f"{problem.mark.line}: {problem.path}" == where
    assert problem.message.startswith(message.format("not valid with any of the surrounding values. For example: "))


def test_the_width_may_be_a_hole_around_a_container_that_does_not_read_it() -> None:
    assert space("{sequence: {of: [attention, {sequence: {of: feed_forward}}]}}").size().points == 2
    with pytest.raises(SpaceError, match=r"residual\.of\.sequence\.of\.attention: No combination .* multiple of heads"):
        space("{sequence: {of: {attention: {heads: 7}}}}")


def test_a_hole_that_is_tied_stands_for_its_values_in_both_places() -> None:
    tied = "[{{attention: {{heads: !choice {{name: h, options: [2, {}]}}}}}}, {{attention: {{heads: !same h}}}}]"
    assert space(tied.format(4)).size().points == 4
    with pytest.raises(SpaceError, match=r"of\[0\].attention.heads: 3 is not valid"):
        space(tied.format(3))


def test_a_stage_that_can_only_begin_with_one_of_its_options_refuses_the_others() -> None:
    stages = "{hourglass: {stages: [[attention], [!choice [feed_forward, funnel_attention]]], decoder: []}}"
    with pytest.raises(SpaceError, match=r"stages\[1\]\[0\]: 'feed_forward' is not valid .*: 'funnel_attention'"):
        Space.parse(f"{{kind: encoder, width: 8, vocabulary: 9, body: {stages}}}")


def test_a_copy_of_a_repeat_may_hold_nothing_where_others_hold_something() -> None:
    layers = "{repeat: {times: 3, of: [!choice {each: true, options: [[], convolution]}]}}"
    assert space(layers, width="8").size().points == 8


@st.composite
def small_spaces(draw: st.DrawFn) -> Block:
    """Two attentions in a decoder. Each has few values, and most combinations are invalid."""

    def hole(*values: Any) -> Any:
        options = tuple(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)))
        return options[0] if len(options) == 1 else Choice(options)

    def attention() -> Any:
        return Block("attention", {"heads": hole(1, 2, 3, 4, 5), "key_value_heads": hole(None, 1, 2, 3)})

    first, second = attention(), attention()
    optional = Choice((second, Block("feed_forward", {}))) if draw(st.booleans()) else second
    position = draw(
        st.sampled_from([Block("none", {}), Block("rotary", {}), Choice((Block("rotary", {}), Block("none", {})))])
    )
    return Block(
        "decoder", {"width": hole(4, 6, 8, 10), "vocabulary": 5, "position": position, "body": (first, optional)}
    )


@settings(max_examples=30)
@given(small_spaces())
def test_refused_is_what_enumeration_never_builds_and_nothing_else(root: Block) -> None:
    whole = Space(root)
    values = {(path, choice) for point in whole.enumerate() for path, choice in point.choices.items()}
    built = {
        (path, choice) for point in whole.enumerate() if whole.feasible(point) for path, choice in point.choices.items()
    }
    assert bool(fitting.problems(whole.root)) == (values != built or not any(map(whole.feasible, whole.enumerate())))


def test_values_that_fit_some_of_the_others_are_left_to_sampling() -> None:
    drawn = space("{attention: {heads: !choice [4, 3]}}", width="!choice [64, 96]")
    points = [drawn.sample(random.Random(seed)) for seed in range(20)]
    assert {64: {4}, 96: {3, 4}} == {
        width: {p.choices["body[0].residual.of[0].attention.heads"] for p in points if p.choices["width"] == width}
        for width in (64, 96)
    }


def test_what_looks_ahead_may_stand_in_an_encoder() -> None:
    assert space("{bigbird_attention: {heads: !choice [2, 4]}}", kind="encoder").size().points == 4


def test_a_table_that_is_shorter_than_the_sequences_is_never_drawn() -> None:
    whole = Space.parse(TABLE)
    lengths = {
        read: {space.sample(random.Random(seed)).choices["position.learned.length"] for seed in range(12)}
        for read, space in {None: whole, 64: whole.with_length(64), 65: whole.with_length(65)}.items()
    }
    assert lengths == {None: {64, 256}, 64: {64, 256}, 65: {256}}
    with pytest.raises(SpaceError, match="learned supports at most 256 positions, but would read 257"):
        whole.with_length(257).sample(random.Random(0))


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("{linformer_attention: {slots: 4, length: 32}}", 31),
        ("{hourglass: {stages: [[funnel_attention], [residual: {order: post, of: {funnel_attention: {}}}, "
         "linformer_attention: {slots: 4, length: 16}]], decoder: []}}", 31),
    ],
)  # fmt: skip
def test_the_length_that_counts_is_what_a_block_reads(body: str, most: int) -> None:
    text = f"kind: encoder\nwidth: 8\nvocabulary: 9\nclass_token: true\nposition: none\nbody: {body}\n"
    architecture = Space.parse(text).sample(random.Random(0)).architecture
    assert not Space.parse(text).with_length(most).violations(architecture)
    assert Space.parse(text).with_length(most + 1).violations(architecture)


def test_combinations_are_limited_for_the_whole_description(monkeypatch):
    """After `EFFORT` combinations, what is not yet known counts as valid."""
    with pytest.raises(SpaceError, match="No combination"):
        space("{attention: {heads: !choice [7, 3]}}")
    monkeypatch.setattr(fitting, "EFFORT", 0)
    assert space("{attention: {heads: !choice [7, 3]}}").size().points == 4
