"""The streams that the benchmark of decoding times are those that reading gives."""

import pytest
import torch

from benchmarks import streaming
from searchspace.contract import Context, Streams
from searchspace.model.architecture import Architecture
from searchspace.model.build import build, cost


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    torch.default_generator.manual_seed(0)
    monkeypatch.setattr(streaming, "PIECE", 8)


@pytest.mark.parametrize("mixer", ["full attention", "LSTM"])
@torch.inference_mode()
def test_a_stream_of_each_context_has_the_declared_state_and_goes_its_own_way(mixer):
    architecture = Architecture.parse(streaming.MODEL.replace("MIXER", streaming.MIXERS[mixer]))
    model = build(architecture).eval()
    streams = streaming.read(model, (8, 24), grows=mixer == "full attention")
    for length in (8, 24):
        assert streams[length].nbytes() == cost(architecture, length=length).state_bytes
    step = streaming.step(model, streams[24])
    step()
    assert (streams[8].length, streams[24].length) == (8, 25)
    assert streams[8].nbytes() == cost(architecture, length=8).state_bytes


@torch.inference_mode()
def test_a_joining_step_joins_the_newest_keys_and_others_do_not():
    model = build(Architecture.parse(streaming.MODEL.replace("MIXER", streaming.MIXERS["full attention"]))).eval()
    streams = Streams()
    model(torch.zeros(1, 8, dtype=torch.long), Context(streams=streams))
    step = streaming.step(model, streams)
    step()
    assert next(iter(streams.slots.values()))["k_new"].shape[2] == 1
    streaming.joining(step)
    assert "k_new" not in next(iter(streams.slots.values()))
    assert next(iter(streams.slots.values()))["k"].shape[2] == 10
