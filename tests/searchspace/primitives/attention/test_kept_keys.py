"""Keys that a stream keeps in two parts: every way of cutting a sequence reads the same, and nothing is held twice."""

import pytest
import torch

from searchspace.contract import Context, Given, Streams
from searchspace.cost import Shape
from searchspace.primitives.attention import kept_keys
from searchspace.registry import configure
from searchspace.tree import Block

PIECES = {"steps": [1] * 23, "prompt": [9] + [1] * 14, "pieces between": [1, 1, 3] * 4 + [1, 2], "whole": [23]}


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    torch.default_generator.manual_seed(0)
    monkeypatch.setattr(kept_keys, "MANY", 5)


def _built(name, **fields):
    configured = configure(Block(name, {"heads": 4, **fields}), Given(dim=16, causal=True))
    return configured, configured.build().double().eval()


def _position(name):
    return configure(Block(name, {}), Given(dim=16, causal=True), role="position").build()


def _read(block, x, pieces, streams, position=None):
    outs = []
    for piece in x.split(pieces, dim=1):
        streams.rewind()
        positions = torch.arange(streams.length, streams.length + piece.shape[1])
        outs.append(block(piece, Context(streams=streams, positions=positions, position=position)))
        streams.length += piece.shape[1]
    return torch.cat(outs, dim=1)


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("name", ["attention", "primer_attention", "t5_attention"])
@pytest.mark.parametrize("position", ["none", "rotary", "alibi"])
def test_any_cut_reads_the_same(name, pieces, position):
    _, block = _built(name)
    x, position = torch.randn(2, 23, 16, dtype=torch.float64), _position(position)
    expected = block(x, Context(positions=torch.arange(23), position=position))
    found = _read(block, x, PIECES[pieces], Streams(), position)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_queries_read_the_same(groups):
    _, block = _built("attention", key_value_heads=groups)
    x = torch.randn(2, 23, 16, dtype=torch.float64)
    found = _read(block, x, PIECES["prompt"], Streams())
    torch.testing.assert_close(found, block(x, Context()), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("length", [1, 2, 5, 6, 14])
def test_both_parts_take_the_declared_bytes_and_no_more(length):
    configured, block = _built("attention", key_value_heads=2)
    streams = Streams()
    _read(block.float(), torch.randn(2, length, 16), [1] * length, streams)
    held = sum(state.untyped_storage().nbytes() for slot in streams.slots.values() for state in slot.values())
    assert held == streams.nbytes() == configured.cost(Shape(batch=2, length=length)).state_bytes


def test_the_newest_keys_lie_apart_until_they_are_many():
    _, block = _built("attention")
    streams = Streams()
    lengths = []
    for x in torch.randn(13, 2, 1, 16, dtype=torch.float64):
        _read(block, x, [1], streams)
        lengths.append(
            [
                next(iter(streams.slots.values()))[name].shape[2]
                for name in ("k", "k_new")
                if name in next(iter(streams.slots.values()))
            ]
        )
    assert lengths[:8] == [[1], [1, 1], [1, 2], [1, 3], [1, 4], [6], [6, 1], [6, 2]]
    assert lengths[-1] == [11, 2]


def test_a_copy_of_a_slot_may_go_another_way():
    _, block = _built("attention")
    x, streams, other = torch.randn(2, 9, 16, dtype=torch.float64), Streams(), Streams()
    _read(block, x[:, :6], [4, 1, 1], streams)
    other.slots, other.length = {key: dict(slot) for key, slot in streams.slots.items()}, streams.length
    _read(block, -x, [3, 1, 1, 4], streams)
    found = _read(block, x[:, 6:], [1, 1, 1], other)
    torch.testing.assert_close(found, block(x, Context())[:, 6:], atol=1e-9, rtol=1e-9)


def test_gradients_flow_back_through_all_pieces():
    _, block = _built("attention")
    x = torch.randn(2, 9, 16, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 9, 16, dtype=torch.float64)
    outs = [_read(block, x, [3] + [1] * 6, Streams()), block(x, Context())]
    gradients = [torch.autograd.grad((out * weights).sum(), [x, *block.parameters()]) for out in outs]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-9, rtol=1e-9)
