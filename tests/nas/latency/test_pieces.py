"""An architecture as a sum of pieces: nothing is left out, nothing counts twice, equal pieces are equal."""

import json
import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.latency import bench, runs
from nas.latency.pieces import Call, CannotCompose, calls
from nas.latency.runs import Setting
from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.random_models import random_model
from searchspace.space.space import Space

LENGTH = 12


def model(body: str, **fields: str):
    written = {"width": "16", "vocabulary": "11", "position": "rotary", **fields}
    text = "".join(f"{name}: {value}\n" for name, value in written.items())
    return Architecture.parse(f"kind: decoder\n{text}body: {body}").configured


def called(configured, length=LENGTH, phase="train", **setting):
    return calls(configured, Setting(phase=phase, length=length, **setting))


def pieces(configured, length=LENGTH, phase="train"):
    return Counter(call.piece for call in called(configured, length, phase))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["decoder", "encoder"]))
def test_the_flops_of_the_pieces_are_those_of_the_model(seed, name):
    configured = random_model(random.Random(seed), name, vocabulary=32)
    try:
        found = pieces(configured)
    except CannotCompose:
        return
    flops = sum(piece.block.cost(Shape(length=piece.length)).expected_flops * count for piece, count in found.items())
    assert flops == configured.cost(Shape(length=LENGTH)).expected_flops  # halting blocks stop at their mean depth


def test_a_repeat_whose_windows_grow_is_a_sum_of_its_copies():
    text = "{kind: decoder, width: 8, vocabulary: 32, body: [repeat: {times: 3, window_growth: 2, of: [BLOCK]}]}"
    text = text.replace("BLOCK", "sliding_window_attention: {heads: 2, window: 4}")
    configured = Architecture.parse(text).configured
    windows = [getattr(piece.block.config, "window", None) for piece in pieces(configured)]
    assert sorted(window for window in windows if window) == [4, 8, 16]


def test_hardly_any_model_is_no_sum():
    space = Space.load("examples/spaces/everything.yaml").with_length(LENGTH)
    drawn = [space.sample(random.Random(number)).architecture.configured for number in range(10)]
    assert all(map(called, drawn))


@pytest.mark.parametrize("times", [1, 3])
def test_copies_of_a_layer_are_one_piece_called_so_often(times):
    found = pieces(model(f"[repeat: {{times: {times}, of: [residual: {{of: [attention: {{heads: 2}}]}}]}}]"))
    named = {piece.block.type.name: count for piece, count in found.items()}
    assert named == {"decoder": 1, "residual": times, "attention": times}


def test_what_does_not_matter_tells_no_pieces_apart():
    first = model("[residual: {of: {attention: {heads: 2, dropout: 0.1}}}]", dropout="0.2", position="none")
    second = model("[residual: {of: {attention: {heads: 2, dropout: 0.4}}}]", vocabulary="17", position="sinusoidal")
    one, two = (set(pieces(each, phase="prefill")) for each in (first, second))
    assert {piece.block.type.name for piece in one & two} == {"residual", "attention"}


def test_what_matters_tells_pieces_apart():
    body = "[residual: {of: {attention: {heads: 2}}}]"
    rotary, alibi = (set(pieces(model(body, position=position))) for position in ("rotary", "alibi"))
    assert {piece.block.type.name for piece in rotary & alibi} == {"residual"}
    assert not set(pieces(model(body), 12)) & set(pieces(model(body), 13))
    texts = {piece.text() for piece in rotary | alibi}
    assert len(texts) == len(rotary | alibi)
    assert all(json.loads(text) for text in texts)


HALTING = "[halting: {times: 4, of: [feed_forward, attention: {heads: 2}]}]"


@pytest.mark.parametrize(("how", "steps"), [({}, 2), ({"phase": "decode"}, 4), ({"depth": 1}, 1), ({"depth": 9}, 4)])
def test_a_halting_block_calls_what_it_holds_as_often_as_its_depth_says(how, steps):
    """An untrained one stops after two steps. Token by token it takes every step."""
    named = Counter(call.piece.block.type.name for call in called(model(HALTING), **how))
    assert named == {"decoder": 1, "halting": 1, "feed_forward": steps, "attention": steps}


@pytest.mark.parametrize("depth", [None, 1, 2, 3, 4, 7])
def test_a_built_halting_block_stops_at_the_depth_of_its_pieces(depth):
    configured, counted = model(HALTING), Counter()
    made = runs.job(configured, torch.device("cpu"), 1, LENGTH, depth)
    for block in made.module.body[0].of:
        block.register_forward_hook(lambda block, *_: counted.update([type(block).__name__]))
    with torch.no_grad():
        made.module.eval()
        made.read(Context())
    steps = sum(call.piece.block.type.name == "attention" for call in called(configured, depth=depth))
    assert counted == {"FeedForward": steps, "Attention": steps}


def test_parameters_that_are_shared_are_fresh_once():
    named = model("[repeat: {times: 3, share_weights: true, of: [gru]}, repeat: {times: 2, of: [convolution]}]")
    fresh = Counter(call.piece.block.type.name for call in called(named) if call.fresh)
    assert fresh == {"decoder": 1, "repeat": 1, "gru": 1, "convolution": 2}


def elements(call):
    weights, device = bench.Weights(torch.device("cpu")), torch.device("cpu")
    bench.run(call, Setting(phase="train", length=LENGTH), device, weights)
    return sum(weights.elements(call.piece))


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["decoder", "encoder"]))
def test_the_parameters_of_fresh_pieces_are_those_of_the_model(seed, name):
    configured = random_model(random.Random(seed), name, vocabulary=32)
    try:
        found = sum(map(elements, (call for call in called(configured) if call.fresh)))
    except CannotCompose:
        return
    shape = Shape(length=LENGTH)
    assert found == pytest.approx(configured.cost(shape).parameters, rel=0.02)  # blocks may share some with others


def test_the_skeleton_of_a_block_that_leaves_another_width_stays_in_the_model():
    found = pieces(
        model(
            "[reversible: {merge: concatenate, of: [attention: {heads: 2}, feed_forward]}]",
            tie_embeddings="false",
            final_norm="none",
        )
    )
    assert {piece.block.type.name for piece in found} == {"decoder", "attention", "feed_forward"}


def test_what_a_backward_pass_calls_again_is_told():
    again = {
        call.piece.block.type.name: call.again
        for call in called(model("[reversible: {of: [attention: {heads: 2}, feed_forward]}]"))
    }
    assert again == {"decoder": False, "reversible": False, "attention": True, "feed_forward": True}


TRANSLATOR = """
kind: encoder_decoder
width: 16
vocabulary: 11
encoder: {residual: {of: {attention: {heads: 2}}}}
decoder: [{residual: {of: {attention: {heads: 2, over: memory}}}}, gru]
"""


def test_an_encoder_decoder_calls_its_encoder_for_the_prompt_only():
    configured = Architecture.parse(TRANSLATOR).configured
    prompt, step = (called(configured, phase=phase) for phase in ("prefill", "decode"))
    named = [[call.piece.block.type.name for call in each] for each in (prompt, step)]
    assert named[0] == ["encoder_decoder", "residual", "attention", "residual", "attention", "gru"]
    assert named[1] == ["encoder_decoder", "residual", "attention", "gru"]
    assert [call.piece.memory for call in step] == [0, 0, LENGTH, 0]


@pytest.mark.parametrize("phase", runs.PHASES)
@pytest.mark.parametrize(
    "body",
    [
        "[residual: {of: {attention: {heads: 2}}}, convolution, gru]",
        "[repeat: {times: 2, share_weights: true, signal: position_and_step, of: [feed_forward]}]",
        "[halting: {times: 3, of: [linear_attention: {heads: 2}]}]",
        "[reversible: {of: [attention: {heads: 2}, feed_forward]}]",
        TRANSLATOR,
    ],
    ids=["plain", "shared", "halting", "reversible", "translator"],
)
def test_every_piece_runs_alone_in_every_phase(body, phase):
    setting, device = Setting(phase=phase, length=LENGTH, batch=2), torch.device("cpu")
    configured = Architecture.parse(TRANSLATOR).configured if body == TRANSLATOR else model(body)
    for piece in pieces(configured, phase=phase):
        run = bench.run(Call(piece), setting, device)
        for _ in range(2):
            run.prepare()
            run.all()
