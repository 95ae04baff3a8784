"""Pieces run the operators that they run inside a model, however long those take."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nas.latency import bench, runs
from nas.latency.pieces import Call, calls
from nas.latency.predicted import EMPTY
from nas.latency.runs import Setting
from searchspace.model.architecture import Architecture

CPU, LENGTH = torch.device("cpu"), 6
BODIES = {
    "residual": "[repeat: {times: 3, of: [residual: {norm: rms_norm, of: [gru, feed_forward]}]}]",
    "shared": "[repeat: {times: 3, share_weights: true, of: [residual: {of: {attention: {heads: 2}}}]}]",
    "reversible": "[reversible: {times: 2, of: [random_feature_attention: {heads: 2}, feed_forward: {dropout: 0.1}]}]",
    "halting": "[halting: {times: 3, of: [feed_forward, convolution]}]",
    "halting, skipped": "[halting: {times: 6, of: [convolution, residual: {of: feed_forward}, feed_forward]}]",
    "halting, live": "[halting: {times: 3, halted: live, of: [convolution, feed_forward]}]",
}
# They move no data, or add up gradients that several calls have in common.
LIGHT = {"detach", "add", "copy_", "slice", "new_empty_strided", "select", "view", "alias", "expand", "empty_like"}


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.found = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def operators(run):
    run.prepare()
    run.all()
    run.prepare()
    with Counting() as counting:
        run.all()
    return Counter({name: count for name, count in counting.found.items() if name not in LIGHT})


@pytest.mark.parametrize("phase", runs.PHASES)
@pytest.mark.parametrize("body", BODIES)
def test_the_operators_of_all_pieces_are_those_of_the_model(body, phase):
    setting = Setting(phase=phase, length=LENGTH)
    configured = Architecture.parse(f"{{kind: decoder, width: 8, vocabulary: 16, body: {BODIES[body]}}}").configured
    job = runs.job(configured, CPU, 1, LENGTH)
    whole = operators({"prefill": runs.prefill, "decode": runs.decode, "train": runs.learn}[phase](job))

    empty = operators(bench.run(Call(replace(EMPTY, length=LENGTH, width=8)), setting, CPU))
    found, known = Counter(empty), {}
    for call in calls(configured, setting):
        known[call] = known.get(call) or operators(bench.run(call, setting, CPU))
        found.update(known[call])
        found.subtract(empty)
    other = (+found - whole) + (whole - +found)
    assert sum(other.values()) <= (3 if "halting" in body else 0), other  # it looks once who still runs


def test_a_call_that_reuses_weights_runs_with_those_of_an_earlier_one():
    body = "[repeat: {times: 3, share_weights: true, of: [gru, gru]}]"
    model = Architecture.parse(f"{{kind: decoder, width: 8, vocabulary: 16, body: {body}}}").configured
    weights = bench.Weights(CPU)
    setting = Setting(phase="prefill", length=LENGTH)
    grus = [call for call in calls(model, setting) if call.piece.block.type.name == "gru"]
    modules = [weights.of(call) for call in grus]

    assert [call.fresh for call in grus] == [True, True, False, False, False, False]
    assert len({id(each) for each in modules}) == 2
    assert [id(each) for each in modules] == [id(each) for each in modules[:2]] * 3


def test_weights_that_are_reused_alone_are_built():
    reused = Call(replace(EMPTY, length=LENGTH, width=8), fresh=False)
    weights = bench.Weights(CPU)
    assert weights.of(reused) is weights.of(reused)
