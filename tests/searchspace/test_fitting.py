"""What cannot work is refused when a space is read, with its place and the reason; the rest is left to sampling."""

import random

import pytest

from searchspace.errors import SpaceError
from searchspace.space import Space

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
            "No values fit together here. For one: dim must be a multiple of heads",
        ),
        ("{attention: {heads: 7}}", "a.yaml:5: body.residual.of.attention", "dim must be a multiple of heads"),
        (
            "!choice [attention, bigbird_attention: {heads: !choice [2, 4]}]",
            r"body.residual.of\[1\].bigbird_attention",
            "bigbird_attention looks ahead, so it cannot stand in a decoder",
        ),
        (
            "{attention: {heads: !choice [2, 4], over: memory}}",
            "body.residual.of.attention",
            "No values fit together here. For one: .*this model has no encoder",
        ),
        (
            "{compressive_attention: {segment: !choice [16, 32], memory: 16, rate: !choice [3, 5]}}",
            "body.residual.of.compressive_attention",
            "For one: segment must be a multiple of rate",
        ),
        (
            "{kernel_attention: {kernel: boxcar, project: true, learned: !choice [head, dimension]}}",
            "body.residual.of.kernel_attention",
            "For one: a boxcar passes no gradient",
        ),
    ],
)
def test_a_block_that_no_architecture_could_have_is_refused(of: str, where: str, reason: str) -> None:
    with pytest.raises(SpaceError, match=f"{where}: .*{reason}"):
        space(of)


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
    with pytest.raises(SpaceError, match="learned is made for at most 256 positions, but would read 257"):
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
