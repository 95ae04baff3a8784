"""Blocks that hand tensors to later blocks, and blocks with a hook after a step: equal to plain loops in float64."""

import pytest
import torch

from searchspace import zoo
from searchspace.contract import Context, Given, Streams
from searchspace.errors import SpaceError
from searchspace.language.schema import complete
from searchspace.model.build import build, cost
from searchspace.registry import configure
from searchspace.tree import Block

TEXT = "kind: decoder\nwidth: 8\nvocabulary: 9\nposition: rotary\nbody: {}\n"


def block(name, **fields):
    torch.default_generator.manual_seed(0)
    return configure(complete(Block(name, fields)), Given(dim=8, causal=True)).build().double()


def heads(x, count):
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def attended(q, k, v):
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    scores = (q @ k.mT * q.shape[3] ** -0.5).masked_fill(~mask, -torch.inf)
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


def test_values_are_mixed_with_those_of_the_first_layer():
    first, mixed = (block("value_residual_attention", heads=2, values=each) for each in ("first", "mixed"))
    x, context = torch.randn(2, 5, 8, dtype=torch.float64), Context()
    y = first(x, context)
    values = heads(first.key_value(x)[..., 8:], 2)
    torch.nn.init.constant_(mixed.mix, 0.7)
    k, v = (heads(part, 2) for part in mixed.key_value(y).chunk(2, dim=2))
    m = torch.tensor(0.7, dtype=torch.float64).sigmoid()
    expected = mixed.output(attended(heads(mixed.query(y), 2), k, (1 - m) * v + m * values))
    torch.testing.assert_close(mixed(y, context), expected, atol=1e-12, rtol=1e-12)


def test_shared_keys_are_those_of_the_owner_and_kept_once():
    own, shared = (block("shared_key_value_attention", heads=2, keys=each) for each in ("own", "shared"))
    x, context = torch.randn(2, 5, 8, dtype=torch.float64), Context()
    y = own(x, context)
    k, v = (heads(part, 2) for part in own.key_value(x).chunk(2, dim=2))
    expected = shared.output(attended(heads(shared.query(y), 2), k, v))
    torch.testing.assert_close(shared(y, context), expected, atol=1e-12, rtol=1e-12)
    body = "[{a}: {{heads: 2}}, {a}: {{heads: 2, keys: shared}}]".format(a="shared_key_value_attention")
    text = TEXT.format(body.replace("{{", "{").replace("}}", "}"))
    model, streams, ids = build(text).double(), Streams(), torch.randint(9, (2, 7))
    pieces = [model(piece, Context(streams=streams)) for piece in ids.split([3, 1, 3], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(ids))
    assert streams.nbytes() == 2 * 2 * 7 * 8 * 8 and list(streams.slots) == ["body.0"]
    assert cost(text, length=7).growing_bytes == 2 * 7 * 8 * 4


@pytest.mark.parametrize("router", ["softmax", "sigmoid"])
def test_each_position_is_computed_by_its_experts(router):
    moe = block("mixture_of_experts", experts=4, chosen=2, hidden=6, router=router)
    moe.bias[1] = 0.3
    x, context = torch.randn(2, 5, 8, dtype=torch.float64), Context()
    found = moe(x, context)
    for b in range(2):
        for t in range(5):
            logits = moe.router(x[b, t])
            scores = logits.softmax(0) if router == "softmax" else logits.sigmoid()
            chosen = sorted(range(4), key=lambda e: -(scores[e] + moe.bias[e]).item())[:2]
            whole = sum(scores[e] for e in chosen)
            each = []
            for e in chosen:
                gate, value = (moe.inner[e] @ x[b, t]).chunk(2)
                each.append(scores[e] / whole * (moe.outer[e] @ (torch.nn.functional.silu(gate) * value)))
            torch.testing.assert_close(found[b, t], sum(each), atol=1e-12, rtol=1e-12)


def test_the_bias_moves_towards_an_even_load_and_padding_does_not_count():
    moe = block("mixture_of_experts", experts=4, chosen=1, balance=0.5)
    x, context = torch.randn(1, 6, 8, dtype=torch.float64), Context(padding=torch.tensor([[True] * 4 + [False] * 2]))
    moe.train()(x, context)
    counts = moe.counts.clone()
    assert counts.sum() == 4 and context.statistics["expert_load"][0].sum() == 1
    moe.after_step()
    torch.testing.assert_close(moe.bias, 0.5 * torch.sign(1 - counts))
    assert not moe.counts.any()
    moe.eval()(x, context)
    assert not moe.counts.any(), "evaluation does not count"
    found = cost(zoo.load("mixture_of_experts"))
    assert found.parameters - found.active_parameters == 4 * 6 * 3 * 256 * 256


def test_a_reader_without_a_writer_is_refused_with_its_place():
    with pytest.raises(SpaceError, match=r"<text>:5: body\[0\].* reads the lane 'values', but no earlier block writes"):
        build(TEXT.format("[value_residual_attention: {heads: 2, values: mixed}]"))
