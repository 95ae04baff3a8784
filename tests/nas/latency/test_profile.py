from collections import Counter

import pytest
import torch
from torch import nn

from nas.latency import resources, runs
from nas.latency.profile import profile
from searchspace.contract import Streams
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.primitives.feedforward.feed_forward import FeedForward

DECODER = """
kind: decoder
width: 16
vocabulary: 11
position: rotary
body:
  - repeat:
      times: 2
      of:
        - residual: {of: {attention: {heads: 2}}}
        - residual: {of: {convolution: {kernel: 3}}}
"""

ENCODER = """
kind: encoder
width: 16
features: 4
classes: 3
body:
  - residual: {of: {attention: {heads: 2}}}
"""

BACKBONE = """
kind: encoder
width: 16
vocabulary: 11
body:
  - residual: {of: {feed_forward: {expand: 2}}}
"""

ENCODER_DECODER = """
kind: encoder_decoder
width: 16
vocabulary: 11
encoder:
  - residual: {of: {attention: {heads: 2}}}
decoder:
  - residual: {of: {attention: {heads: 2}}}
  - residual: {of: {attention: {heads: 2, over: memory}}}
"""

HALTING = DECODER[: DECODER.index("body")] + "body: [{halting: {times: 6, of: [{feed_forward: {expand: 2}}]}}]"

ALL = {"decoder": DECODER, "encoder": ENCODER, "backbone": BACKBONE, "encoder-decoder": ENCODER_DECODER}
SMALL = {"length": 8, "batch": 2, "warmup": 0, "repeats": 3}


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def architecture(request):
    return Architecture.parse(request.param)


@pytest.fixture
def decoder():
    return Architecture.parse(DECODER)


def test_measures_every_phase_that_a_model_has(architecture):
    latencies = profile(architecture, **SMALL)
    expected = ["prefill", "train"] if architecture.root.name == "encoder" else ["prefill", "decode", "train"]

    assert [latency.phase for latency in latencies] == expected
    assert [each.phase for each in profile(architecture, phases=("train", "prefill"), **SMALL)] == ["prefill", "train"]
    for latency in latencies:
        assert 0 < latency.low <= latency.milliseconds <= latency.high
        assert latency.samples == 3
        assert latency.coverage == 0.75
        assert latency.kind == "measured"


def test_a_step_always_starts_from_the_whole_prompt(decoder, monkeypatch):
    seen = []
    rewind = Streams.rewind
    monkeypatch.setattr(Streams, "rewind", lambda self: (seen.append(self.length), rewind(self)))
    profile(decoder, phases=["decode"], **SMALL)

    assert seen[0] == 0  # reading the prompt, which every build does once
    assert Counter(seen)[0] == 3
    assert set(seen) == {0, 8}


def test_a_training_step_trains_every_weight_and_a_prompt_none(decoder, monkeypatch):
    steps = Counter()
    step = torch.optim.AdamW.step

    def counted(self, *arguments):
        without = [p for group in self.param_groups for p in group["params"] if p.grad is None]
        steps["without gradient"] += len(without)
        steps["taken"] += 1
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    profile(decoder, **SMALL)

    assert steps == Counter({"taken": 3 + 1, "without gradient": 0})  # one to see what serves it


def test_phases_run_in_the_mode_they_are_used_in(decoder, monkeypatch):
    modes = set()
    forward = nn.Dropout.forward

    def watched(self, x):
        modes.add((self.training, torch.is_grad_enabled()))
        return forward(self, x)

    monkeypatch.setattr(nn.Dropout, "forward", watched)
    profile(decoder, **SMALL)

    assert modes == {(False, False), (True, True)}


def test_leaves_threads_and_random_numbers_as_they_were(decoder):
    threads = torch.get_num_threads()
    torch.default_generator.manual_seed(7)
    expected = torch.rand(1)
    torch.default_generator.manual_seed(7)
    profile(decoder, threads=threads + 1, phases=["prefill"], **SMALL)

    assert torch.get_num_threads() == threads
    assert torch.rand(1) == expected


def test_generating_reads_the_prompt_and_each_new_token_but_the_last(decoder):
    made, read = runs.job(decoder.configured, torch.device("cpu"), 2, 8), Counter()
    made.module.register_forward_pre_hook(lambda module, arguments: read.update([arguments[0].shape[1]]))
    for run, expected in ((runs.first_token(made), {8: 1}), (runs.generate(made, 5), {8: 1, 1: 4})):
        read.clear()
        run.prepare()
        run.all()
        assert read == expected


def test_halting_blocks_take_the_steps_that_are_asked_for(monkeypatch):
    calls = Counter()
    forward = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda *given: (calls.update([depth]), forward(*given))[1])
    for depth in (1, 2, 5, 9):
        profile(Architecture.parse(HALTING), phases=["prefill"], depth=depth, **SMALL)

    assert {depth: calls[depth] / calls[1] for depth in calls} == {1: 1, 2: 2, 5: 5, 9: 6}


def test_says_tokens_per_second_memory_and_energy(decoder):
    phases = ["decode", "train", "generate"]
    found = {each.phase: each for each in profile(decoder, phases=phases, new_tokens=4, extras=True, **SMALL)}
    tokens = {"decode": 2, "train": 16, "generate": 8}
    for phase, each in found.items():
        assert each.tokens_per_second == pytest.approx(1e3 * tokens[phase] / each.milliseconds)
        assert each.joules is None or each.joules >= 0
    weights = 4 * decoder.configured.cost(Shape(length=8)).parameters
    assert weights < found["decode"].peak_bytes < found["train"].peak_bytes
    at = {phase: runs.Setting(phase=phase, length=8, batch=2) for phase in runs.PHASES}
    declared = {phase: resources.declared(decoder.configured, setting) for phase, setting in at.items()}
    assert declared["train"] > declared["decode"] > weights and declared["prefill"] is None


def test_energy_is_the_mean_of_the_calls(tmp_path, monkeypatch):
    """Two packages; each call takes 3 joules."""
    for number in (0, 1):
        (tmp_path / f"intel-rapl:{number}").mkdir()
        (tmp_path / f"intel-rapl:{number}" / "energy_uj").write_text(str(10**6))
    file = tmp_path / "intel-rapl:1" / "energy_uj"
    spends = runs.Run(lambda: None, lambda: file.write_text(str(int(file.read_text()) + 3 * 10**6)))
    monkeypatch.setattr(resources, "RAPL", tmp_path)
    assert resources.joules(spends, torch.device("cpu"), 0.0) == pytest.approx(3.0)
    monkeypatch.setattr(resources, "RAPL", tmp_path / "none")
    assert resources.joules(spends, torch.device("cpu"), 0.0) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"phases": ["prefil"]}, r"option 'phase': must be 'prefill', .* but got 'prefil'. Did you mean 'prefill'\?"),
        ({"phases": []}, "phases must name some of"),
        ({"length": 0}, "option 'length': must be greater than or equal to 1, but got 0"),
        ({"batch": -1}, "option 'batch': must be greater than or equal to 1, but got -1"),
        ({"threads": 0}, "option 'threads': must be greater than or equal to 1, but got 0"),
        ({"depth": 0}, "option 'depth': must be greater than or equal to 1, but got 0"),
        ({"device": "cuda:99"}, "'cuda:99' is not available"),
    ],
    ids=["unknown-phase", "no-phase", "length", "batch", "threads", "depth", "device"],
)
def test_rejects_what_it_cannot_measure(decoder, arguments, message):
    with pytest.raises(ValueError, match=message):
        profile(decoder, **arguments)


def test_an_encoder_has_nothing_to_decode():
    with pytest.raises(ValueError, match="no phase 'decode': encoder cannot read its input in pieces"):
        profile(Architecture.parse(ENCODER), phases=["decode"], **SMALL)


@pytest.mark.cuda
def test_counts_the_memory_of_a_gpu(decoder):
    latencies = {latency.phase: latency for latency in profile(decoder, "cuda", **SMALL)}

    assert latencies["train"].peak_bytes > latencies["decode"].peak_bytes > 0
