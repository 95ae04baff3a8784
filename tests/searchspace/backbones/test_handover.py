"""A decoder that starts where its encoder ended: against torch's own layers, in pieces, under padding, and refusals."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from searchspace.contract import Context, Streams
from searchspace.errors import SpaceError
from searchspace.model.build import build, cost

KINDS = {"lstm": (nn.LSTM, 4), "gru": (nn.GRU, 3)}


def _text(kind, encoder="{directions: forward}", times=2, share=False):
    layers = "repeat: {times: %d, share_weights: %s, of: {%s: %s}}"
    many = times, str(share).lower(), kind
    return f"""
kind: encoder_decoder
width: 6
vocabulary: 13
source_vocabulary: 17
tie_embeddings: false
scale_embedding: false
position: none
encoder: {{{layers % (*many, encoder)}}}
encoder_norm: none
decoder: {{{layers % (*many, "{start: memory}")}}}
final_norm: none
"""


def _model(*arguments, **options):
    torch.default_generator.manual_seed(0)
    return build(_text(*arguments, **options)).double().eval()


def _tokens():
    torch.default_generator.manual_seed(1)
    return torch.randint(17, (3, 5)), torch.randint(13, (3, 7))


def _recurrent(body):
    return [block for block in body.modules() if hasattr(block, "recurrent")]


def _layer(kind, block, x, start=None):
    """The block as torch's own layer: (its outputs, its last states)."""
    gates, H = KINDS[kind][1], block.recurrent.shape[2]
    weights = {}
    for n, end in enumerate(("", "_reverse")[: len(block.recurrent)]):
        rows = slice(n * gates * H, (n + 1) * gates * H)
        weights |= {f"weight_ih_l0{end}": block.input.weight[rows], f"bias_ih_l0{end}": block.input.bias[rows]}
        second = torch.zeros(gates * H, dtype=torch.float64)
        if kind == "gru":
            second[2 * H :] = block.bias[n]
        weights |= {f"weight_hh_l0{end}": block.recurrent[n], f"bias_hh_l0{end}": second}
    layer = KINDS[kind][0](6, H, batch_first=True, bidirectional=len(block.recurrent) == 2).double()
    return functional_call(layer, weights, (x, start))


def _beside(states):
    """[N, B, H] -> [1, B, N * H]."""
    return states.transpose(0, 1).flatten(1)[None].contiguous()


@pytest.mark.parametrize("encoder", ["{directions: forward}", "{}"], ids=["forward", "both"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_each_layer_starts_from_the_last_states_of_its_own(kind, encoder):
    model, (source, target) = _model(kind, encoder), _tokens()
    x, ends = model.source(source), []
    for block in _recurrent(model.encoder):
        x, last = _layer(kind, block, x)
        ends.append(tuple(map(_beside, last)) if kind == "lstm" else _beside(last))
    y = model.embedding(target)
    for block, start in zip(_recurrent(model.decoder), ends, strict=True):
        y, _ = _layer(kind, block, y, start)
    torch.testing.assert_close(model(source, target), model.embedding.logits(y))


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_in_pieces_with_padding_and_beams_as_at_once(kind):
    model, (source, target) = _model(kind), _tokens()
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
    whole = model(source, target, Context(memory_padding=real))
    for row, length in enumerate((5, 3, 1)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(whole[row : row + 1], alone)
    context, index = Context(memory_padding=real, streams=Streams()), torch.tensor([2, 0, 0])
    model.encode(source, context)
    torch.testing.assert_close(model.decode(target[:, :2], context), whole[:, :2])
    context.streams.reorder(index)
    for t in range(2, 7):
        found = model.decode(target[index, t : t + 1], context)
        torch.testing.assert_close(found, whole[index, t : t + 1])


def test_gradients_pass_through_the_states_alone():
    model, (source, target) = _model("lstm"), _tokens()
    model(source, target).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_shared_block_hands_over_what_its_last_call_left():
    model, (source, _) = _model("gru", share=True), _tokens()
    context = Context()
    model.encode(source, context)
    assert [name for name in context.lanes if name.startswith("final.")] == ["final.0.h"]
    assert context.read("final.0.h").equal(model.encode(source)[:, -1])


def test_a_second_source_replaces_the_first():
    model, (source, target) = _model("gru"), _tokens()
    context = Context()
    model.encode(source, context)
    torch.testing.assert_close(model(source.flip(0), target, context), model(source.flip(0), target))
    assert {"final.0.h", "final.1.h"} <= context.lanes.keys()


@torch.no_grad()
def test_a_compiled_model_hands_over_as_well():
    torch.compiler.reset()
    model, (source, target) = _model("lstm"), _tokens()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(source, target), model(source, target))


def test_counts_the_source_table():
    model = _model("lstm")
    assert cost(_text("lstm")).parameters == sum(parameter.numel() for parameter in model.parameters())
    assert model.source.table.weight.shape == (17, 6)


READING = """
kind: encoder_decoder
width: 6
vocabulary: 13
encoder: {{gru: {{hidden: {encoder}}}}}
decoder: [{{gru: {{start: memory, hidden: {decoder}}}}}, {{attention: {{heads: 2, over: memory}}}}]
"""


def test_a_wide_state_starts_from_both_directions_of_narrow_ones():
    model = build(READING.format(encoder=4, decoder=8)).double().eval()
    source, target = torch.randint(13, (3, 5)), torch.randint(13, (3, 7))
    context, seen = Context(), []
    model.decoder[0].register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    model.encode(source, context)
    model.decode(target, context)
    (x, out), final = seen[0], context.read("final.0.h")
    assert final.shape == (3, 8)
    block = model.decoder[0]
    torch.testing.assert_close(block.output(_layer("gru", block, x, final[None])[0]), out)
    with pytest.raises(
        SpaceError, match="state of width 5, but recurrent block 0 of the encoder leaves 8, both direct"
    ):
        build(READING.format(encoder=4, decoder=5))
    with pytest.raises(SpaceError, match="so the linear map that hidden adds to the last of them would have no effect"):
        build(_text("gru", "{hidden: 3}").replace("start: memory", "start: memory, hidden: 6"))


def test_says_what_does_not_fit():
    model, (source, target) = _model("gru"), _tokens()
    context = Context()
    context.write("memory", model.encode(source), "B S C")
    with pytest.raises(ValueError, match=r"encode with the same context first: model\.encode\(source, con"):
        model.decode(target, context)
    with pytest.raises(SpaceError, match="2 blocks of the decoder start from the encoder, start: memory, but it has 0"):
        build(_text("lstm").replace("lstm: {directions: forward}", "attention: {heads: 2}"))
    with pytest.raises(SpaceError, match="block 0 of the decoder with start: memory is lstm, but recurrent block 0"):
        build(_text("lstm").replace("lstm: {directions: forward}", "gru: {directions: forward}"))
    with pytest.raises(SpaceError, match="states of 2 of its 3 recurrent blocks, so the others would have no effect"):
        build(_text("lstm").replace("times: 2", "times: 3", 1))
    for behind in ("encoder_norm: layer_norm", "encoder: [{repeat: {times: 2, of: lstm}}, {attention: {heads: 2}}]"):
        key = behind.split(":")[0]
        lines = [behind if line.startswith(key + ":") else line for line in _text("lstm").splitlines()]
        with pytest.raises(SpaceError, match="blocks or norms after the last of them would have no effect"):
            build("\n".join(lines))
    with pytest.raises(SpaceError, match="start='memory' needs the encoder's states, but this model has no encoder"):
        build("kind: decoder\nwidth: 6\nvocabulary: 13\nbody: {gru: {start: memory}}\n")
    with pytest.raises(SpaceError, match="source_vocabulary must be at least 1, but got 0"):
        build(_text("lstm").replace("source_vocabulary: 17", "source_vocabulary: 0"))
