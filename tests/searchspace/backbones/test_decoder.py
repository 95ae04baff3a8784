"""What must hold of every decoder, over random bodies of all registered blocks, and of a Transformer by name."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace.combinators.sequence import SequenceConfig
from searchspace.contract import Capabilities, Context, Given, Primitive, Streams
from searchspace.errors import SpaceError
from searchspace.language.schema import complete
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost
from searchspace.parts import Misplaced, check_lanes
from searchspace.primitives.convolution.convolution import Convolution
from searchspace.random_models import random_model
from searchspace.registry import BlockType, Configured, configure
from searchspace.tree import Block

VOCABULARY = 13
MODERN = """
kind: decoder
width: 32
vocabulary: 13
position: rotary
tie_embeddings: {tied}
body:
  - residual: {{norm: rms_norm, of: {{attention: {{heads: 4, key_value_heads: 2}}}}}}
  - halting:
      times: 3
      of:
        - residual: {{of: gated_feed_forward}}
        - residual: {{of: {{sliding_window_attention: {{window: 3}}}}}}
"""
seeds = st.integers(0, 10**9)


def decoder(seed: int) -> torch.nn.Module:
    torch.default_generator.manual_seed(seed)
    return random_model(random.Random(seed), "decoder", vocabulary=VOCABULARY).build().double().eval()


def modern(tied: str = "true") -> torch.nn.Module:
    torch.default_generator.manual_seed(0)
    return build(MODERN.format(tied=tied)).eval()


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch, length))


@given(seeds, st.integers(2, 8), st.data())
@settings(max_examples=30)
@torch.no_grad()
def test_no_position_sees_what_comes_after_it(seed: int, length: int, data: st.DataObject) -> None:
    model, past = decoder(seed), data.draw(st.integers(1, length - 1))
    if any(isinstance(block, Primitive) and block.capabilities.selects for block in model.modules()):
        return  # what the past reads of itself may change
    first = tokens(2, length)
    second = torch.cat([first[:, :past], tokens(2, length - past)], dim=1)
    torch.testing.assert_close(model(first)[:, :past], model(second)[:, :past])


@given(seeds, st.lists(st.integers(1, 4), min_size=1, max_size=5))
@settings(max_examples=30)
@torch.no_grad()
def test_reading_in_pieces_equals_reading_at_once(seed: int, pieces: list[int]) -> None:
    model = decoder(seed)
    if model.cannot_stream:
        return
    whole, context = tokens(2, sum(pieces)), Context(streams=Streams())
    logits = [model(piece, context) for piece in whole.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), model(whole))
    assert context.streams.length == sum(pieces)


@given(seeds, st.integers(1, 6))
@settings(max_examples=20)
@torch.no_grad()
def test_what_stands_at_padded_positions_changes_nothing(seed: int, length: int) -> None:
    model, first = decoder(seed), tokens(2, length + 3)
    padding = torch.arange(length + 3).expand(2, -1) < length
    second = torch.where(padding, first, tokens(2, length + 3))
    out = model(first, Context(padding=padding))[:, :length]
    torch.testing.assert_close(out, model(second, Context(padding=padding))[:, :length])
    torch.testing.assert_close(out, model(first[:, :length]))


@torch.no_grad()
def test_beams_can_be_reordered_while_streaming() -> None:
    model, context = modern(), Context(streams=Streams())
    beams, order = tokens(3, 4), torch.tensor([2, 2, 0])
    model(beams, context)
    context.streams.reorder(order)
    step = tokens(3, 1)
    expected = model(torch.cat([beams[order], step], dim=1))[:, -1:]
    torch.testing.assert_close(model(step, context), expected)


def test_the_first_loss_is_near_that_of_guessing() -> None:
    model, sequence = modern(), tokens(16, 33)
    loss = torch.nn.functional.cross_entropy(model(sequence[:, :-1]).flatten(0, 1), sequence[:, 1:].flatten())
    assert abs(loss.item() - math.log(VOCABULARY)) < 0.1


def test_a_tied_table_is_one_parameter_and_serves_both_ends() -> None:
    tied, untied = modern("true"), modern("false")
    extra = sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters())
    assert extra == 32 * VOCABULARY
    table = tied.embedding.table.weight
    hidden = torch.randn(2, 3, 32)
    torch.testing.assert_close(tied.embedding.logits(hidden), hidden @ table.T)
    torch.testing.assert_close(tied.embedding(torch.tensor([[4]]))[0, 0], table[4] * math.sqrt(32))


@pytest.mark.parametrize("tied", ["true", "false"])
def test_logits_may_have_a_bias(tied: str) -> None:
    plain, sequence = modern(tied), tokens(2, 5)
    text = MODERN.format(tied=tied) + "logits_bias: true\n"
    model = build(text).eval()
    assert model.load_state_dict(plain.state_dict(), strict=False).missing_keys == ["embedding.bias"]
    assert model(sequence).equal(plain(sequence))
    torch.nn.init.normal_(model.embedding.bias)
    torch.testing.assert_close(model(sequence), plain(sequence) + model.embedding.bias)
    declared = cost(text, batch=2, length=5)
    assert declared.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_gradients_reach_every_parameter_and_the_halting_loss_joins_in() -> None:
    model, context = modern().train(), Context()
    loss = torch.nn.functional.cross_entropy(model(tokens(4, 9), context).flatten(0, 1), tokens(4, 9).flatten())
    assert len(context.losses) == 1
    (loss + context.loss()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert "halting_steps" in context.statistics


def test_residual_outputs_start_smaller_the_deeper_the_model() -> None:
    def spread(times: int) -> float:
        torch.default_generator.manual_seed(0)
        body = f"{{repeat: {{times: {times}, of: {{residual: {{of: {{attention: {{heads: 2}}}}}}}}}}}}"
        model = build(f"kind: decoder\nwidth: 64\nvocabulary: 9\nbody: {body}\n")
        return model.body[0].of[0].output.weight.std().item()

    assert spread(16) == pytest.approx(spread(1) / 4)


@torch.no_grad()
def test_a_compiled_copy_agrees() -> None:
    model, sequence = modern(), tokens(2, 5)
    torch.testing.assert_close(torch.compile(model, backend="eager")(sequence), model(sequence))


@torch.no_grad()
@pytest.mark.parametrize("position", ["learned: {length: 12}", "sinusoidal", "rotary", "alibi"])
def test_padded_pieces_and_packed_documents_equal_each_sequence_alone(position: str) -> None:
    blocks = "[attention: {heads: 2}, gru: {}, repeat: {times: 2, share_weights: true, of: convolution}]"
    model = (
        build(
            f"kind: decoder\nwidth: 8\nvocabulary: 9\nposition: {{{position}}}\nbody: {blocks}".replace(
                "{sinusoidal}", "sinusoidal"
            )
            .replace("{rotary}", "rotary")
            .replace("{alibi}", "alibi")
        )
        .double()
        .eval()
    )
    text, streams, outs = torch.randint(9, (2, 9)), Streams(), []
    real = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1, 1], [1, 1, 1, 0, 0, 1, 1, 1, 1]]).bool()
    for start, stop in ((0, 4), (4, 7), (7, 9)):
        padding = real[:, start:stop] if start < 7 else None
        outs.append(model(text[:, start:stop], Context(streams=streams, padding=padding)))
    packed = model(text, Context(documents=torch.tensor([[0] * 3 + [1] * 6, [5] * 9])))
    for row in range(2):
        alone = model(text[row : row + 1, real[row]])
        torch.testing.assert_close(torch.cat(outs, dim=1)[row : row + 1, real[row]], alone)
    torch.testing.assert_close(packed[:1], torch.cat([model(text[:1, :3]), model(text[:1, 3:])], dim=1))
    torch.testing.assert_close(packed[1:], model(text[1:]))


class Whole(Primitive):
    """Causal, but it needs its whole input at once."""

    capabilities = Capabilities(streaming=False)

    def __init__(self, config: object) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        return x


def test_a_block_that_looks_ahead_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Convolution, "capabilities", Capabilities(causal=False))
    with pytest.raises(ValueError, match="convolution looks ahead, so it cannot be part of a decoder"):
        build("kind: decoder\nwidth: 8\nvocabulary: 9\nbody: {residual: {of: convolution}}\n")
    assert build("kind: encoder\nwidth: 8\nvocabulary: 9\nbody: convolution\n")


def test_a_block_that_cannot_stream_is_named() -> None:
    whole = Configured(BlockType("whole", SequenceConfig, Whole, "block"), SequenceConfig(of=()))
    model = random_model(random.Random(0), "decoder", vocabulary=VOCABULARY, body=(whole,)).build()
    assert model(tokens(1, 3)).shape == (1, 3, VOCABULARY)
    with pytest.raises(ValueError, match="cannot read its input in pieces: whole cannot"):
        model(tokens(1, 3), Context(streams=Streams()))


def test_attention_over_an_encoder_that_is_not_there_is_refused() -> None:
    text = "kind: decoder\nwidth: 8\nvocabulary: 9\nbody: {attention: {heads: 2, over: memory}}\n"
    with pytest.raises(SpaceError, match="this model has no encoder"):
        build(text)


@pytest.mark.parametrize(("field", "message"), [("width: 0", "width must be"), ("dropout: 1.5", "dropout must lie")])
def test_refuses_values_that_make_no_sense(field: str, message: str) -> None:
    fields = {"width": "width: 8", "vocabulary": "vocabulary: 9", "body": "body: feed_forward"}
    fields[field.split(":")[0]] = field
    with pytest.raises(SpaceError, match=message):
        build("\n".join(["kind: decoder", *fields.values()]) + "\n")


def test_mixed_precision_trains_and_stays_near_single() -> None:
    model, sequence = modern(), tokens(2, 9)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(sequence)
    torch.testing.assert_close(mixed.float(), model(sequence), atol=0.05, rtol=0.05)
    mixed.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("mixer", ["attention", "sliding_window_attention", "primer_attention", "lsh_attention"])
def test_rotary_positions_need_heads_of_even_width_and_say_so_before_anything_is_built(mixer):
    text = "kind: decoder\nwidth: 12\nvocabulary: 9\nposition: rotary\nbody: {residual: {of: {%s: {heads: 4}}}}"
    with pytest.raises(SpaceError, match=rf"{mixer} with dim=12, heads=4: Rotary positions .* must be even"):
        _ = Architecture.parse(text % mixer).configured
    assert Architecture.parse((text % mixer).replace("rotary", "alibi"))


def test_a_layer_may_have_its_own_position():
    text = "kind: decoder\nwidth: 8\nvocabulary: 13\nposition: {}\nbody:\n- attention: {{heads: 2}}\n- attention: {}\n"
    own = build(text.format("rotary", "{heads: 2, position: {rotary: {base: 50.0}}}")).double()
    alone, ids = build(text.format("{rotary: {base: 50.0}}", "{heads: 2}")).double(), tokens(2, 7)
    alone.load_state_dict(own.state_dict())
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    used = Context(positions=torch.arange(7), position=own.position)
    torch.testing.assert_close(
        own.body[1](x, used), alone.body[1](x, Context(positions=torch.arange(7), position=alone.position))
    )
    assert not torch.allclose(own(ids), alone(ids))
    with pytest.raises(
        SpaceError, match=r"<text>:7: body\[1\]\.attention: position: sinusoidal is added to the input of a model"
    ):
        build(text.format("rotary", "{heads: 2, position: sinusoidal}"))


def test_a_reader_of_a_lane_needs_an_earlier_writer():
    config = Block("gru", {"start": "memory"})
    taker = configure(complete(config), Given(dim=8, causal=True, memory=True))
    with pytest.raises(Misplaced, match=r"body\[1\]: gru reads the lane 'final', but no earlier block writes it"):
        check_lanes({"body": (configure(complete(Block("attention", {})), Given(dim=8)), taker)})
    assert check_lanes({"body": (taker,)}, {"final"}) == {"final"}
