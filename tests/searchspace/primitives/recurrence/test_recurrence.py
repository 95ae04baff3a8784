"""LSTM and GRU against torch's own, against their formulas number by number, and what padding may not do to them."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from searchspace.contract import Context
from searchspace.primitives.recurrence.gru import GRU, GRUConfig
from searchspace.primitives.recurrence.lstm import LSTM, LSTMConfig

KINDS = {"lstm": (LSTM, LSTMConfig, nn.LSTM, 4), "gru": (GRU, GRUConfig, nn.GRU, 3)}
LENGTHS = torch.tensor([7, 3, 1])
PADDING = torch.arange(7) < LENGTHS[:, None]


def _built(kind, dim=6, **fields):
    module, config = KINDS[kind][:2]
    return module(config(dim=dim, **fields)).double()


def _as_torchs(kind, block):
    """The block's weights under the names that torch gives them."""
    gates, (N, H) = KINDS[kind][3], block.config.layout
    weights = {}
    for n in range(N):
        rows, end = slice(n * gates * H, (n + 1) * gates * H), "_reverse" if n else ""
        weights[f"weight_ih_l0{end}"], weights[f"bias_ih_l0{end}"] = block.input.weight[rows], block.input.bias[rows]
        weights[f"weight_hh_l0{end}"] = block.recurrent[n]
        second = torch.zeros(gates * H, dtype=torch.float64)
        weights[f"bias_hh_l0{end}"] = torch.cat([second[: 2 * H], block.bias[n]]) if kind == "gru" else second
    return weights


def _torchs(kind, block, x, packed=False):
    N, H = block.config.layout
    oracle = KINDS[kind][2](x.shape[2], H, batch_first=True, bidirectional=N == 2).double()
    if packed:
        x = pack_padded_sequence(x, LENGTHS, batch_first=True)
    out = functional_call(oracle, _as_torchs(kind, block), (x,))[0]
    return pad_packed_sequence(out, batch_first=True)[0] if packed else out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_torchs_own(agrees, kind, causal):
    block = _built(kind, causal=causal)
    for length in (1, 2, 9):
        x = torch.randn(3, length, 6, dtype=torch.float64)
        agrees(block, lambda x: _torchs(kind, block, x), x)
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    agrees(block, lambda x: _torchs(kind, block, x, packed=True), x, Context(padding=PADDING))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [4, 9])
def test_a_state_of_another_width_equals_torchs_own_with_a_linear_map(agrees, hidden, kind, causal):
    block = _built(kind, causal=causal, hidden=hidden)
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    agrees(block, lambda x: block.output(_torchs(kind, block, x)), x)
    agrees(block, lambda x: block.output(_torchs(kind, block, x, packed=True)), x, Context(padding=PADDING))


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def _dot(weights, values):
    return sum(float(w) * v for w, v in zip(weights, values, strict=True))


def _lstm_step(block, x, h, c):
    H, U = len(h), block.recurrent[0]
    a = [_dot(block.input.weight[j], x) + float(block.input.bias[j]) + _dot(U[j], h) for j in range(4 * H)]
    c = [_sigmoid(a[H + j]) * c[j] + _sigmoid(a[j]) * math.tanh(a[2 * H + j]) for j in range(H)]
    return [_sigmoid(a[3 * H + j]) * math.tanh(c[j]) for j in range(H)], c


def _gru_step(block, x, h, c):
    H, U = len(h), block.recurrent[0]
    a = [_dot(block.input.weight[j], x) + float(block.input.bias[j]) for j in range(3 * H)]
    r = [_sigmoid(a[j] + _dot(U[j], h)) for j in range(H)]
    z = [_sigmoid(a[H + j] + _dot(U[H + j], h)) for j in range(H)]
    reset = [r[j] * h[j] for j in range(H)]
    new = []
    for j in range(H):
        row = U[2 * H + j]
        past = _dot(row, reset) if block.bias is None else r[j] * (_dot(row, h) + float(block.bias[0, j]))
        new.append((1 - z[j]) * math.tanh(a[2 * H + j] + past) + z[j] * h[j])
    return new, c


@pytest.mark.parametrize(
    ("kind", "step", "fields"),
    [("lstm", _lstm_step, {}), ("gru", _gru_step, {"variant": "torch"}), ("gru", _gru_step, {"variant": "cho"})],
)
def test_equals_its_formula_number_by_number(kind, step, fields):
    torch.default_generator.manual_seed(0)
    block = _built(kind, dim=3, causal=True, **fields).requires_grad_(False)
    x = torch.randn(1, 5, 3, dtype=torch.float64)
    h, c, expected = [0.0] * 3, [0.0] * 3, []
    for t in range(5):
        h, c = step(block, x[0, t].tolist(), h, c)
        expected.append(h)
    torch.testing.assert_close(block(x, Context())[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "fields"), [("lstm", {}), ("gru", {}), ("gru", {"variant": "cho"})])
@pytest.mark.parametrize("causal", [True, False])
def test_padding_anywhere_is_as_if_it_were_not_there(kind, fields, causal):
    torch.default_generator.manual_seed(0)
    block, x = _built(kind, causal=causal, **fields), torch.randn(1, 8, 6, dtype=torch.float64)
    padding = torch.tensor([[False, True, True, False, True, False, True, False]])
    alone = block(x[:, padding[0]], Context())
    torch.testing.assert_close(block(x, Context(padding=padding))[:, padding[0]], alone, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_the_forget_gate_alone_starts_at_its_bias(causal):
    block = _built("lstm", causal=causal, forget_bias=2.5)
    N, H = block.config.layout
    assert block.input.bias.view(N, 4, H).mean((0, 2)).tolist() == [0, 2.5, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_a_width_that_two_directions_cannot_share(kind):
    config = KINDS[kind][1]
    with pytest.raises(
        ValueError, match="dim must be even, so that each of two directions has half of it, but got dim=5"
    ):
        config(dim=5)
    assert config(dim=5, causal=True).layout == (1, 5)
    assert config(dim=5, hidden=4).layout == (2, 4)
    with pytest.raises(ValueError, match="hidden must be at least 1, but got 0"):
        config(dim=6, hidden=0)


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(("causal", "directions"), [(True, "both"), (False, "both"), (False, "forward")])
def test_an_lstm_without_gradients_takes_torchs_own_layer_and_gives_the_same(causal, directions, length):
    torch.default_generator.manual_seed(0)
    block = LSTM(LSTMConfig(dim=6, causal=causal, directions=directions))
    x, ends, quiet_ends = torch.randn(3, length, 6), Context(), Context()
    expected = block(x, ends)
    with torch.no_grad():
        torch.testing.assert_close(block(x, quiet_ends), expected)
    assert quiet_ends.lanes.keys() == ends.lanes.keys() and bool(ends.lanes) == (not causal)
    for name in ends.lanes:
        torch.testing.assert_close(quiet_ends.read(name), ends.read(name))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_falls_on_the_output_and_never_on_the_state(kind):
    torch.default_generator.manual_seed(0)
    block, x = _built(kind, causal=True, dropout=0.5).train(), torch.randn(2, 30, 6, dtype=torch.float64)
    whole, dropped = block.eval()(x, Context()), block.train()(x, Context())
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    with pytest.raises(ValueError, match="dropout must lie in"):
        KINDS[kind][1](dim=6, dropout=1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_to_start_from_an_encoder_that_is_not_there(kind):
    with pytest.raises(ValueError, match="start='memory' needs the encoder's states, but this model has no encoder"):
        KINDS[kind][1](dim=6, start="memory")


@pytest.mark.parametrize("kind", KINDS)
def test_reads_forward_alone_where_it_is_told_to(agrees, kind):
    block = _built(kind, directions="forward")
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    agrees(block, lambda x: _torchs(kind, block, x, packed=True), x, Context(padding=PADDING))
