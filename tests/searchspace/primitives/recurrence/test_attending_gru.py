"""The decoder that attends in every step against its formulas, one sequence, step and source position at a time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.primitives.recurrence.attending_gru import AttendingGRU, AttendingGRUConfig

ORDERS = pytest.mark.parametrize("order", ["paper", "luong"])


def _built(order, dim=6, **fields):
    torch.default_generator.manual_seed(0)
    return AttendingGRU(AttendingGRUConfig(dim=dim, memory=True, order=order, **fields)).double()


def _read(block, s, memory):
    """sum_j a_j h_j with a = softmax_j v . tanh(W s + U h_j); memory: the real h of one sequence."""
    if not memory:
        return torch.zeros_like(s)
    scores = [block.score @ torch.tanh(block.query @ s + block.key.weight @ h) for h in memory]
    weights = torch.stack(scores).softmax(0)
    return sum(weight * h for weight, h in zip(weights, memory, strict=True))


def _unit(block, x, s, fed):
    """Cho's unit: the reset gate in front of the product."""
    H = len(s)
    a = block.input.weight[: 3 * H] @ x + block.input.bias[: 3 * H] + block.fed @ fed
    (U_r, U_z, U_n), (a_r, a_z, a_n) = block.recurrent.chunk(3), a.chunk(3)
    r, z = torch.sigmoid(a_r + U_r @ s), torch.sigmoid(a_z + U_z @ s)
    return (1 - z) * torch.tanh(a_n + U_n @ (r * s)) + z * s


def _paper(block, x, s, memory):
    H, C, outs = len(s), block.config.dim, []
    for x_i in x:
        c = _read(block, s, memory)
        V, b = block.input.weight[3 * H :], block.input.bias[3 * H :]
        pairs = block.combined[:, :H] @ s + V @ x_i + b + block.combined[:, H:] @ c
        outs.append(torch.stack([max(pairs[2 * j], pairs[2 * j + 1]) for j in range(C)]))
        s = _unit(block, x_i, s, c)
    return outs


def _luong(block, x, s, memory):
    o, outs = torch.zeros_like(s), []
    for x_i in x:
        s = _unit(block, x_i, s, o)
        o = torch.tanh(block.combined @ torch.cat([s, _read(block, s, memory)]))
        outs.append(o)
    return outs


def _plain(block, x, memory, real=None, padding=None):
    batch = []
    for b in range(x.shape[0]):
        seen = [j for j in range(memory.shape[1]) if real is None or real[b, j]]
        h = [memory[b, j] for j in seen]
        half = h[0][memory.shape[2] // 2 :] if h else memory.new_zeros(memory.shape[2] // 2)
        s = torch.tanh(F.linear(half, block.start.weight, block.start.bias))
        steps = [i for i in range(x.shape[1]) if padding is None or padding[b, i]]
        outs = (_paper if block.config.paper else _luong)(block, [x[b, i] for i in steps], s, h)
        row = [torch.zeros_like(x[b, 0])] * x.shape[1]
        for i, out in zip(steps, outs, strict=True):
            row[i] = out
        batch.append(torch.stack(row))
    return torch.stack(batch)


@ORDERS
@pytest.mark.parametrize("alignment", [None, 3])
def test_equals_its_formula(agrees, order, alignment):
    block = _built(order, alignment=alignment)
    for length in (1, 2, 5):
        x, memory = torch.randn(2, length, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
        context = Context(memory=memory)
        agrees(block, lambda x: _plain(block, x, context.read("memory")), x, context)  # noqa: B023


@ORDERS
def test_padding_on_either_side_is_as_if_it_were_not_there(agrees, order):
    block = _built(order)
    x, memory = torch.randn(3, 5, 6, dtype=torch.float64), torch.randn(3, 4, 6, dtype=torch.float64)
    padding = torch.tensor([[True] * 5, [False, True, True, False, True], [True, False, False, True, False]])
    real = torch.tensor([[False, True, True, False], [True] * 4, [False] * 4])
    context = Context(memory=memory, memory_padding=real, padding=padding)
    agrees(block, lambda x: _plain(block, x, memory, real, padding), x, context)


@ORDERS
def test_starts_from_the_backward_half_of_the_first_state(order):
    block = _built(order)
    x, memory = torch.randn(1, 1, 6, dtype=torch.float64), torch.zeros(1, 3, 6, dtype=torch.float64)
    expected = block(x, Context(memory=memory))
    with torch.no_grad():
        block.start.weight.zero_()
    torch.testing.assert_close(block(x, Context(memory=memory)), expected)  # of zeros nothing arrives
    changed = memory.clone()
    changed[:, 0, :3] = 5.0
    block.load_state_dict(_built(order).state_dict())
    with torch.no_grad():
        block.score.zero_()
        block.fed.zero_()
        block.combined.zero_()
        block.combined[:, :6] = torch.eye(6, dtype=torch.float64).repeat(2 if order == "paper" else 1, 1)
    torch.testing.assert_close(block(x, Context(memory=changed)), block(x, Context(memory=memory)))
    changed[:, 0, 3:] = 5.0
    assert (block(x, Context(memory=changed)) - block(x, Context(memory=memory))).abs().max() > 1e-3


def _joeynmt(block, x, memory):
    """One sequence, as joeynmt's `RecurrentDecoder` with `BahdanauAttention` computes it. memory: the real h."""
    H, C = block.config.width, memory.shape[1]
    unit = nn.GRU(C + (0 if block.fed is None else H), H, batch_first=True).double()
    weights = {"weight_ih_l0": block.input.weight, "bias_ih_l0": block.input.bias, "weight_hh_l0": block.recurrent}
    if block.fed is not None:
        weights["weight_ih_l0"] = torch.cat([block.input.weight, block.fed], dim=1)
    weights["bias_hh_l0"] = torch.cat([torch.zeros(2 * H, dtype=x.dtype), block.reset_bias])
    hidden = torch.zeros(1, 1, H, dtype=x.dtype)
    if block.config.first_state == "bridge":  # tanh(W [last forward state; last backward state])
        final = torch.cat([memory[-1, : C // 2], memory[0, C // 2 :]])
        hidden = torch.tanh(block.start(final))[None, None]
    vector, outs = torch.zeros(H, dtype=x.dtype), []
    for embedded in x:
        entered = embedded if block.fed is None else torch.cat([embedded, vector])
        hidden = functional_call(unit, weights, (entered[None, None], hidden))[1]
        query = hidden[0, 0]
        energies = torch.tanh(query @ block.query.T + memory @ block.key.weight.T) @ block.score
        context = energies.softmax(0) @ memory
        vector = torch.tanh(F.linear(torch.cat([query, context]), block.combined, block.bias))
        outs.append(vector)
    out = torch.stack(outs)
    return out if block.output is None else block.output(out)


@pytest.mark.parametrize("order", ["luong", "unfed"])
@pytest.mark.parametrize("options", [{"first_state": "bridge", "hidden": 4}, {"first_state": "zeros", "alignment": 3}])
def test_equals_the_decoder_of_joeynmt(agrees, order, options):
    """torch's unit, a bridge or zeros, a bias of the output, no feeding, a state narrower than the memory."""
    block = _built(order, variant="torch", output_bias=True, **options)
    x, memory = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    context = Context(memory=memory, memory_padding=real)
    agrees(
        block,
        lambda x: torch.stack([_joeynmt(block, x[b], context.read("memory")[b, real[b]]) for b in range(2)]),
        x,
        context,
    )


def test_a_narrow_state_of_the_paper_reads_and_writes_the_width_of_the_model(agrees):
    block = _built("paper", hidden=3, variant="cho")
    x, memory = torch.randn(2, 4, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
    context = Context(memory=memory)
    agrees(block, lambda x: _plain(block, x, context.read("memory")), x, context)


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="the context has no lane 'memory'"):
        _built("paper")(torch.randn(1, 2, 6, dtype=torch.float64), Context())
