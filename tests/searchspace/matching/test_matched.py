from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace import zoo
from searchspace.cost import Shape
from searchspace.errors import SpaceError
from searchspace.matching import SHAPES, Matched, available, matched
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost

LENGTH = 64
LAYERS = """
      - residual: {of: {linear_attention: {heads: 2}}}
      - residual: {of: {gated_feed_forward: {expand: %d}}}
"""
HEADS = {
    "decoder": "kind: decoder\nwidth: {width}\nvocabulary: {vocabulary}\nbody:",
    "encoder": "kind: encoder\nwidth: {width}\nvocabulary: {vocabulary}\nclasses: 5\nbody:",
    "encoder_decoder": "kind: encoder_decoder\nwidth: {width}\nvocabulary: {vocabulary}\n"
    "encoder: [{{attention: {{heads: 2}}}}]\ndecoder:\n  - attention: {{heads: 2, over: memory}}\n  -",
}


def model(kind: str, width: int, depth: int, vocabulary: int = 256, expand: int = 3) -> Architecture:
    head = HEADS[kind].format(width=width, vocabulary=vocabulary)
    return Architecture.parse(f"{head} \n    repeat:\n     times: {depth}\n     of:{LAYERS % expand}")


def depth(found: Matched) -> int:
    fields = found.architecture.root.fields
    return len(fields.get("body") or fields["encoder"]) // 2


def sizes(kind: str = "decoder") -> st.SearchStrategy[Architecture]:
    """Models of about 100,000 to 30 million parameters."""
    return st.builds(
        model,
        kind=st.just(kind),
        width=st.sampled_from(range(96, 640, 16)),
        depth=st.integers(2, 8),
        vocabulary=st.sampled_from([64, 256, 2000]),
        expand=st.integers(1, 5),
    )


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_every_family_is_matched_within_three_per_cent_in_every_shape(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(HEADS)))
    winner = data.draw(sizes(kind))
    name, match = data.draw(st.sampled_from(available(kind))), data.draw(st.sampled_from(["parameters", "flops"]))
    found = matched(name, winner, match=match, shape=data.draw(st.sampled_from(sorted(SHAPES))), length=LENGTH)
    costs = [cost(each, length=LENGTH) for each in (winner, found.architecture)]
    wanted = [each.parameters if match == "parameters" else each.training_flops for each in costs]
    assert [found.target, found.reached] == wanted
    assert abs(found.error) <= 0.03
    assert found.note == ""


@given(sizes(), st.sampled_from(available("decoder")))
@settings(max_examples=6, deadline=None)
def test_the_deep_model_has_twice_the_layers_of_the_wide_one(winner: Architecture, name: str) -> None:
    deep, wide = (matched(name, winner, shape=shape, length=LENGTH) for shape in ("deep", "wide"))
    assert depth(deep) >= 2 * depth(wide)
    assert abs(deep.error) <= 0.03
    assert abs(wide.error) <= 0.03


@pytest.mark.parametrize("name", available("decoder"))
def test_small_models_are_matched_too(name: str) -> None:
    for width, layers in [(24, 2), (32, 3), (48, 2), (64, 2)]:  # from 17,904 parameters
        winner = model("decoder", width, layers)
        deep, wide = (matched(name, winner, shape=shape, length=LENGTH) for shape in ("deep", "wide"))
        assert abs(deep.error) <= 0.08
        assert abs(wide.error) <= 0.08
        assert depth(deep) > depth(wide)
        assert 8 * depth(wide) < wide.architecture.root.fields["width"]


def test_a_model_of_the_quickstart_is_compared_with_four_and_with_two_layers() -> None:
    winner = model("decoder", 86, 5)
    deep, wide = (matched("transformer", winner, shape=shape, length=LENGTH) for shape in ("deep", "wide"))
    assert deep.target == 398_868
    assert [depth(each) for each in (deep, wide)] == [4, 2]
    assert [each.architecture.root.fields["width"] for each in (deep, wide)] == [88, 124]


def test_a_larger_winner_gets_a_larger_baseline() -> None:
    winners = [model("decoder", width, 3) for width in (64, 160, 162, 400)]
    for match in ("parameters", "flops", "state"):
        reached = [matched("transformer", each, match=match, shape="deep", length=LENGTH).reached for each in winners]
        assert reached == sorted(reached)


@pytest.mark.parametrize("name", zoo.names())
def test_the_zoo_is_matched_within_three_per_cent(name: str) -> None:
    size = [*zoo.sizes(name), "base"][1]
    assert abs(matched("transformer", zoo.load(name, size), length=LENGTH).error) <= 0.03


def test_a_plain_transformer_is_matched_by_itself() -> None:
    plain = matched("transformer", zoo.load("transformer"), length=LENGTH).architecture
    assert (plain.root.fields["width"], len(plain.root.fields["encoder"])) == (512, 12)
    assert matched("transformer", plain, length=LENGTH).architecture == plain


def test_it_reads_and_predicts_as_the_winner_does() -> None:
    vectors = matched("transformer", zoo.load("vit", "tiny"), length=LENGTH).architecture.root.fields
    assert (vectors["features"], vectors["classes"], vectors["vocabulary"]) == (4, 10, None)
    tokens = matched(
        "transformer_modern", zoo.load("transformer_encoder", "tiny"), length=LENGTH
    ).architecture.root.fields
    assert (tokens["tokens"], tokens["classes"], tokens["vocabulary"], tokens["segments"]) == (True, None, 256, 2)
    pairs = matched("transformer", zoo.load("seq2seq_lstm", "tiny"), length=LENGTH).architecture.root.fields
    assert pairs["source_vocabulary"] == 256


@pytest.mark.parametrize("name", ["transformer", "transformer_modern", "primer"])
def test_a_baseline_has_the_parameters_that_were_matched_and_ties_as_the_winner(name: str) -> None:
    for winner in (zoo.load("transformer_modern", "tiny"), zoo.load("primer", "tiny")):
        found = matched(name, winner, shape="wide", length=LENGTH)
        fields = found.architecture.root.fields
        assert fields["tie_embeddings"] is winner.root.fields["tie_embeddings"]
        assert sum(p.numel() for p in build(found.architecture).parameters()) == found.reached


def test_a_llama_like_model_has_no_biases_and_a_hidden_layer_of_eight_thirds() -> None:
    text = matched("transformer_modern", model("decoder", 192, 4), length=LENGTH).architecture.text(defaults=True)
    assert "bias: true" not in text
    assert "layer_norm" not in text
    assert "gated_feed_forward" in text and "rms_norm" in text and "rotary" in text


def test_a_winner_that_shares_its_weights_is_matched_by_the_flops_it_uses() -> None:
    shared = Architecture.parse(
        model("decoder", 128, 6).text().replace("times: 6", "times: 6\n    share_weights: true")
    )
    parameters, flops = (
        matched("transformer", shared, match=match, length=LENGTH) for match in ("parameters", "flops")
    )
    ratio = cost(flops.architecture, length=LENGTH).parameters / cost(parameters.architecture, length=LENGTH).parameters
    assert ratio > 3


def test_a_halting_winner_counts_at_the_depth_of_the_shape() -> None:
    winner = zoo.load("universal_transformer", "small")  # at most 6 steps
    targets = [
        matched("transformer", winner, match="flops", length=Shape(length=LENGTH, halting_steps=steps)).target
        for steps in (2.0, 6.0)
    ]
    untrained = matched("transformer", winner, match="flops", length=LENGTH).target
    whole = cost(winner, length=LENGTH)
    assert targets == [pytest.approx(whole.training_flops * share) for share in (targets[0] / targets[1], 1)]
    assert targets[0] == pytest.approx(
        3 * cost(winner, Shape(length=LENGTH, halting_steps=2.0)).expected_flops, rel=0.01
    )
    assert untrained == pytest.approx(3 * whole.expected_flops, rel=0.01)


def test_state_is_matched_where_the_winner_keeps_any() -> None:
    found = matched("transformer", model("decoder", 256, 4), match="state", shape="wide", length=1024)
    assert abs(found.error) <= 0.03
    small = matched("transformer", zoo.load("gru", "tiny"), match="state", shape="wide", length=1024)
    assert small.error > 1
    assert small.note == f"{small.error:.0%} more bytes of state than the winner"
    with pytest.raises(SpaceError, match="a model of kind encoder, has no bytes of state to match"):
        matched("transformer", model("encoder", 64, 2), match="state", length=LENGTH)


def test_a_recurrent_model_with_the_state_of_attention_is_too_large() -> None:
    winner = zoo.load("transformer_decoder", "tiny")
    recurrent = Architecture.parse("kind: decoder\nwidth: 32\nvocabulary: 256\nbody: [residual: {of: gru}]")
    with pytest.raises(SpaceError, match=r"With the winner's state it would have [0-9,]+ times the"):
        matched(recurrent, winner, match="state", length=1024)


@pytest.mark.parametrize(("shape", "factor"), [("deep", 0.5), ("wide", 1.0), ("deep", 3.0)])
def test_latency_is_matched_with_few_measurements(shape: str, factor: float) -> None:
    winner, measured = model("decoder", 160, 4), []

    def latency(architecture: Architecture) -> float:
        """Every block costs time of its own. The winner is `factor` times as slow as its FLOPs say."""
        measured.append(architecture)
        seconds = 1e-5 * len(architecture.root.fields["body"]) + 1e-12 * cost(architecture, length=LENGTH).flops
        return seconds * (factor if architecture == winner else 1)

    found = matched("transformer", winner, match="latency", shape=shape, length=LENGTH, measure=latency)
    assert len(measured) == len(set(measured)) <= 9
    assert abs(found.error) <= 0.08
    assert found.reached == latency(found.architecture)


def test_a_baseline_that_is_not_near_says_how_far_it_is() -> None:
    architecture = zoo.load("gru", "tiny")
    assert Matched(architecture, 100, 102).note == ""
    assert Matched(architecture, 100, 90).note == "10% fewer parameters than the winner"
    assert Matched(architecture, 100, 120, "flops").note == "20% more training FLOPs than the winner"
    assert Matched(architecture, 0.1, 0.2, "latency").note == "100% slower than the winner"


def test_latency_needs_a_function_that_measures() -> None:
    winner = model("decoder", 64, 2)
    with pytest.raises(SpaceError, match="needs a function `measure`"):
        matched("transformer", winner, match="latency", length=LENGTH)
    with pytest.raises(SpaceError, match="measure must give a latency above 0, but gave nan"):
        matched("transformer", winner, match="latency", length=LENGTH, measure=lambda _: float("nan"))


def test_a_wrong_name_is_rejected_with_the_nearest() -> None:
    winner = model("decoder", 64, 2)
    with pytest.raises(SpaceError, match="Did you mean 'transformer'"):
        matched("transfomer", winner, length=LENGTH)
    with pytest.raises(SpaceError, match="Did you mean 'flops'"):
        matched("primer", winner, match="flop", length=LENGTH)
    with pytest.raises(SpaceError, match="Did you mean 'deep'"):
        matched("primer", winner, shape="deeper", length=LENGTH)
    with pytest.raises(SpaceError, match=r"no file 'missing\.yaml'"):
        matched("missing.yaml", winner, length=LENGTH)


def test_primer_says_which_families_other_kinds_have() -> None:
    with pytest.raises(
        SpaceError, match=r"primer exists as decoder, but .* encoder\. .* transformer, transformer_modern"
    ):
        matched("primer", model("encoder", 64, 2), length=LENGTH)


def test_a_file_of_the_user_may_leave_out_the_vocabulary(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("kind: decoder\nwidth: 32\nbody:\n  repeat:\n    times: 2\n    of:" + LAYERS % 2)
    winner = model("decoder", 128, 4, vocabulary=100)
    found = matched(file, winner, shape="deep", length=LENGTH)
    assert found.architecture.root.fields["vocabulary"] == 100
    assert abs(found.error) <= 0.03
    file.write_text("kind: decoder\nwidth: 32\nbody:\n  repeat:\n    times: 2\n    of:" + LAYERS % 5)
    assert matched(file, winner, shape="deep", length=LENGTH) != found
