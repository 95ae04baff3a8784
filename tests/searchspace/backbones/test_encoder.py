import random

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from searchspace.backbones.encoder import mean_position
from searchspace.contract import Context, Streams
from searchspace.errors import SpaceError
from searchspace.model.build import build, cost
from searchspace.parts import configured_below
from searchspace.random_models import random_model
from searchspace.testing import count_flops

FIELDS = [
    {"vocabulary": 13},
    {"features": 3},
    {"features": 3, "classes": 4},
    {"vocabulary": 13, "classes": 4},
    {"vocabulary": 13, "tokens": True},
    {"vocabulary": 13, "tokens": True, "logits_bias": True},
    {"vocabulary": 13, "tokens": True, "class_token": True, "segments": 2, "head": "hidden"},
    {"features": 3, "classes": 4, "class_token": True, "pool": "first", "head": "hidden", "dropout": 0.1},
    {"features": 3, "class_token": True},
]


def inputs(fields: dict, batch: int, length: int) -> torch.Tensor:
    if "features" in fields:
        return torch.randn(batch, length, fields["features"], dtype=torch.float64)
    return torch.randint(0, 13, (batch, length))


@given(st.integers(0, 10**9), st.sampled_from(FIELDS), st.integers(1, 6))
@settings(max_examples=30)
@torch.no_grad()
def test_padding_changes_nothing(seed: int, fields: dict, length: int) -> None:
    torch.default_generator.manual_seed(seed)
    configured = random_model(random.Random(seed), "encoder", **fields)
    assume(all(getattr(block.config, "hides_padding", True) for block in configured_below(configured)))
    model = configured.build().double().eval()
    alone = inputs(fields, 2, length)
    padded = torch.cat([alone, inputs(fields, 2, 3)], dim=1)
    padding = torch.arange(length + 3).expand(2, -1) < length
    out, expected = model(padded, Context(padding=padding)), model(alone)
    torch.testing.assert_close(out if "classes" in fields else out[:, : expected.shape[1]], expected)


@pytest.mark.parametrize("fields", FIELDS)
def test_gives_vectors_or_logits(fields: dict) -> None:
    model = random_model(random.Random(1), "encoder", **fields).build().double()
    out = model(inputs(fields, 2, 5))
    vectors = (2, 6, 16) if "class_token" in fields else (2, 5, 16)
    assert out.shape == ((2, 4) if "classes" in fields else (2, 5, 13) if "tokens" in fields else vectors)


def test_a_position_sees_what_comes_after_it() -> None:
    torch.default_generator.manual_seed(0)
    model = build("kind: encoder\nwidth: 8\nvocabulary: 13\nbody: {attention: {heads: 2}}\n")
    first = torch.tensor([[1, 2, 3]])
    assert not torch.allclose(model(first)[:, 0], model(torch.tensor([[1, 2, 4]]))[:, 0])


def test_the_mean_is_over_real_positions() -> None:
    x = torch.tensor([[[1.0], [3.0], [100.0]], [[7.0], [8.0], [9.0]]])
    padding = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_position(x, padding).tolist() == [[2.0], [0.0]]
    torch.testing.assert_close(mean_position(x, None), x.mean(1))


@pytest.mark.parametrize("fields", ["", "vocabulary: 13\nfeatures: 3\n"])
def test_needs_either_tokens_or_vectors(fields: str) -> None:
    with pytest.raises(SpaceError, match=r"either vocabulary .* or features"):
        build(f"kind: encoder\nwidth: 8\n{fields}body: feed_forward\n")


def test_logits_of_tokens_are_products_with_the_table_they_are_read_with() -> None:
    torch.default_generator.manual_seed(0)
    text = "kind: encoder\nwidth: 8\nvocabulary: 13\ntokens: {}\nbody: {{attention: {{heads: 2}}}}\n"
    plain, logits, tokens = build(text.format("false")), build(text.format("true")), torch.randint(0, 13, (2, 5))
    logits.load_state_dict(plain.state_dict())
    torch.testing.assert_close(logits(tokens), plain(tokens) @ plain.input.table.weight.T)


@pytest.mark.parametrize(
    ("fields", "message"),
    [("features: 3\n", "so it needs vocabulary"), ("vocabulary: 13\nclasses: 4\n", r"and classes=4; leave one out")],
)
def test_logits_of_tokens_need_a_table_and_no_classes(fields: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build(f"kind: encoder\nwidth: 8\ntokens: true\n{fields}body: feed_forward\n")


def test_reading_in_pieces_is_refused() -> None:
    model = build("kind: encoder\nwidth: 8\nvocabulary: 13\nbody: feed_forward\n")
    with pytest.raises(ValueError, match="cannot read its input in pieces"):
        model(torch.zeros(1, 2, dtype=torch.int64), Context(streams=Streams()))


BERT = """
kind: encoder
width: 8
vocabulary: 13
segments: 2
position: {learned: {length: 12}}
scale_embedding: false
input_norm: {layer_norm: {eps: 1.0e-12}}
body:
  - residual: {order: post, norm: {layer_norm: {eps: 1.0e-12}}, of: {attention: {heads: 2, bias: true}}}
  - residual: {order: post, norm: {layer_norm: {eps: 1.0e-12}}, of: {feed_forward: {activation: gelu}}}
final_norm: none
"""


def _bert(model: torch.nn.Module, tokens: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
    """BERT's vectors, with torch's own layer of the same weights."""
    x = model.input.table.weight[tokens] + model.segments.table[segments] + model.position.table[: tokens.shape[1]]
    x = torch.nn.functional.layer_norm(x, (8,), model.input_norm.gain, model.input_norm.bias, 1e-12)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", 1e-12, batch_first=True).double().eval()
    (first, second), attention, feed_forward = model.body, model.body[0].of[0], model.body[1].of[0]
    with torch.no_grad():
        for name in ("weight", "bias"):
            query_key_value = torch.cat([getattr(attention.query, name), getattr(attention.key_value, name)])
            getattr(layer.self_attn, f"in_proj_{name}").copy_(query_key_value)
            getattr(layer.self_attn.out_proj, name).copy_(getattr(attention.output, name))
            getattr(layer.linear1, name).copy_(getattr(feed_forward.inner, name))
            getattr(layer.linear2, name).copy_(getattr(feed_forward.output, name))
        for norm, own in ((layer.norm1, first.norm), (layer.norm2, second.norm)):
            norm.weight.copy_(own.gain)
            norm.bias.copy_(own.bias)
    return layer(x)


def test_bert_is_torchs_encoder_layer_on_a_normed_sum_of_three_embeddings() -> None:
    torch.default_generator.manual_seed(0)
    model = build(BERT).double().eval()
    tokens, segments = torch.randint(0, 13, (2, 7)), torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)
    expected = _bert(model, tokens, segments)
    torch.testing.assert_close(model(tokens, Context(segments=segments)), expected, atol=1e-9, rtol=1e-9)
    assert model(tokens).equal(model(tokens, Context(segments=torch.zeros_like(segments))))


def test_a_hidden_head_is_berts() -> None:
    torch.default_generator.manual_seed(0)
    tokens, functional = torch.randint(0, 13, (2, 7)), torch.nn.functional
    plain = build(BERT).double().eval()
    model = build(BERT + "tokens: true\nhead: hidden\n").double().eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    hidden, norm = model.head.hidden[0], model.head.hidden[2]
    torch.nn.init.normal_(model.head.bias)
    vectors = functional.gelu(plain(tokens) @ hidden.weight.T + hidden.bias)
    vectors = functional.layer_norm(vectors, (8,), norm.weight, norm.bias, 1e-12)
    torch.testing.assert_close(model(tokens), vectors @ plain.input.table.weight.T + model.head.bias)
    model = build(BERT + "classes: 3\nhead: hidden\npool: first\n").double().eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    pooled = (plain(tokens)[:, 0] @ model.head.hidden.weight.T + model.head.hidden.bias).tanh()
    torch.testing.assert_close(model(tokens), pooled @ model.head.weight.T + model.head.bias)


def test_a_hidden_head_may_be_of_another_gelu_and_epsilon() -> None:
    torch.default_generator.manual_seed(0)
    head = "tokens: true\nhead: hidden\nhead_activation: gelu_tanh\nhead_eps: 0.1\n"
    vectors, model = build(BERT).double().eval(), build(BERT + head).double().eval()
    model.load_state_dict(vectors.state_dict(), strict=False)
    tokens, functional = torch.randint(0, 13, (2, 7)), torch.nn.functional
    hidden = functional.gelu(model.head.hidden[0](vectors(tokens)), approximate="tanh")
    hidden = functional.layer_norm(hidden, (8,), eps=0.1)
    torch.testing.assert_close(model(tokens), hidden @ model.input.table.weight.T, atol=1e-9, rtol=1e-9)


def test_logits_of_tokens_may_have_a_bias_without_a_hidden_layer() -> None:
    torch.default_generator.manual_seed(0)
    plain, tokens = build(BERT + "tokens: true\n").eval(), torch.randint(0, 13, (2, 7))
    model = build(BERT + "tokens: true\nlogits_bias: true\n").eval()
    assert model.load_state_dict(plain.state_dict(), strict=False).missing_keys == ["head.bias"]
    torch.nn.init.normal_(model.head.bias)
    torch.testing.assert_close(model(tokens), plain(tokens) + model.head.bias)


def test_a_class_token_stands_in_front_and_is_position_zero() -> None:
    torch.default_generator.manual_seed(0)
    text = "kind: encoder\nwidth: 8\nfeatures: 3\nposition: {learned: {length: 6}}\nfinal_norm: none\n"
    body = "body: {attention: {heads: 2}}\n"
    model, x = build(f"{text}class_token: true\nbody: []\n"), torch.randn(2, 5, 3)
    table = model.position.table
    out = model(x)
    torch.testing.assert_close(out[:, 0], (model.first + table[0]).expand(2, -1))
    torch.testing.assert_close(out[:, 1:], model.input(x) + table[1:6])
    first = build(f"{text}class_token: true\nclasses: 4\npool: first\n{body}")
    vectors = build(f"{text}class_token: true\n{body}")
    vectors.load_state_dict(first.state_dict(), strict=False)
    torch.testing.assert_close(first(x), first.head(vectors(x)[:, 0]))
    first(x).sum().backward()
    assert first.first.grad.abs().max() > 0


def test_a_class_token_is_real_where_all_else_is_padding() -> None:
    text = "kind: encoder\nwidth: 8\nfeatures: 3\nclass_token: true\nclasses: 4\nbody: {attention: {heads: 2}}\n"
    model = build(text).eval()
    nothing = Context(padding=torch.zeros(2, 5, dtype=torch.bool))
    torch.testing.assert_close(model(torch.randn(2, 5, 3), nothing), model(torch.randn(2, 0, 3)))


FUNNEL = """
kind: encoder
width: 8
vocabulary: 13
class_token: true
position: none
{fields}
body:
  hourglass:
    stages: [{{funnel_attention: {{heads: 2}}}}, {{funnel_attention: {{heads: 2}}}}]
    decoder: {decoder}
"""


def test_an_encoder_may_leave_fewer_positions_and_its_mean_is_over_the_real_ones() -> None:
    torch.default_generator.manual_seed(0)
    tokens, padding = torch.randint(0, 13, (2, 8)), torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    vectors = build(FUNNEL.format(fields="", decoder="[]")).eval()
    assert vectors(tokens).shape == (2, 5, 8)
    assert build(FUNNEL.format(fields="", decoder="[sequence: []]"))(tokens).shape == (2, 9, 8)
    classes = build(FUNNEL.format(fields="classes: 3", decoder="[]")).eval()
    classes.load_state_dict(vectors.state_dict(), strict=False)
    out = vectors(tokens, Context(padding=padding))
    mean = torch.stack([out[0].mean(0), out[1, :3].mean(0)])  # pairs of (0), (1, 2), (3, 4), (5, 6), (7, 8)
    torch.testing.assert_close(classes(tokens, Context(padding=padding)), classes.head(mean))


@pytest.mark.parametrize(
    "fields",
    [
        "",
        "classes: 3",
        "tokens: true",
        "tokens: true\nlogits_bias: true",
        "tokens: true\nhead: hidden",
        "classes: 3\npool: first\nhead: hidden",
    ],
)
@pytest.mark.parametrize("length", [1, 6, 9])
def test_costs_follow_a_sequence_that_grows_and_shrinks(fields: str, length: int) -> None:
    text = FUNNEL.format(fields=fields, decoder="[attention]" if "tokens" in fields else "[]")
    model, tokens = build(text), torch.randint(0, 13, (2, length))
    declared = cost(text, batch=2, length=length)
    assert declared.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (declared.flops, declared.training_flops) == count_flops(lambda: model(tokens))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FUNNEL.format(fields="tokens: true", decoder="[]"), "the body has fewer output than input positions"),
        (
            "kind: encoder\nwidth: 8\nvocabulary: 9\nbody: {residual: {of: {hourglass: {stages: [attention, attention],"
            " decoder: []}}}}\n",
            "hourglass shortens its input, so it cannot be inside residual",
        ),
        ("kind: encoder\nwidth: 8\nvocabulary: 9\nhead: hidden\nbody: attention\n", "needs tokens: true or classes"),
        ("kind: encoder\nwidth: 8\nvocabulary: 9\nlogits_bias: true\nbody: attention\n", "so it needs tokens: true"),
        ("kind: encoder\nwidth: 8\nvocabulary: 9\nhead_eps: 0.0\nbody: attention\n", "head_eps must be above 0"),
        ("kind: encoder\nwidth: 8\nvocabulary: 9\nsegments: 0\nbody: attention\n", "segments must be at least 1"),
    ],
)
def test_refuses_outputs_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build(text)


def test_a_segment_beyond_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Segments count from 0 to 1 here, but got 2"):
        build(BERT)(torch.zeros(1, 2, dtype=torch.int64), Context(segments=torch.tensor([[0, 2]])))
