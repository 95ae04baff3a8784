"""Predictions are exact where times add up, say how far off they are where they do not, and measure nothing twice."""

import hashlib
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.latency import bench, predicted, runs, timing
from nas.latency.calibration import CrossCheck
from nas.latency.measured import MEASURED, PREDICTED, CannotRun, PhaseLatency, latency
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import COPIES, Predictor, interpolated, shortened
from nas.latency.runs import Setting
from nas.latency.table import Entry, Table, piece_problem
from nas.latency.timing import Round
from searchspace.model.architecture import Architecture

SETTING = Setting(phase="train", length=8)  # in which small models are sums too
BODIES = [
    "[gru]",
    "[repeat: {times: 3, of: [gru, feed_forward]}]",
    "[residual: {of: {attention: {heads: 2}}}, convolution]",
    "[repeat: {times: 2, of: [residual: {of: [convolution]}]}]",
    "[repeat: {times: 5, of: [residual: {of: [feed_forward]}]}]",
]


def architecture(body):
    return Architecture.parse(f"kind: decoder\nwidth: 16\nvocabulary: 11\nbody: {body}")


def table():
    """A table that does not measure what counts as quiet."""
    made = Table()
    made.quiet = 1.0
    return made


class Additive(Predictor):
    """On a device where the time of a piece follows from its name, and a model takes `factor` times the sum."""

    def __init__(self, factor=1.25, setting=SETTING):
        super().__init__(table(), setting)
        self.factor, self.timed = factor, []

    def key(self, call):
        return piece_problem(self.setting, call)

    def _measure(self, made):
        self.timed += made
        return {each: self._taken(self.key(each)) for each in made}

    def _taken(self, text):
        time = 1 + hashlib.sha256(text.encode()).digest()[0] / 256
        return Entry(time, time, time, (), {"repeated": time / 2, "elements": ()})

    def step(self, sizes):
        assert not list(sizes)
        return 0.0

    def measured(self, architecture):
        time = self.sum(architecture).milliseconds * self.factor
        return PhaseLatency(
            phase="train", milliseconds=time, low=time, high=time, samples=1, coverage=0.9, peak_bytes=None
        )


@given(factor=st.floats(0.5, 2.0))
def test_is_exact_where_times_add_up(factor):
    predictor = Additive(factor)
    *others, judged = map(architecture, BODIES)
    check = predictor.check(others, len(others))
    found = predictor.predicted(judged, check)

    assert check.error == pytest.approx(0, abs=1e-9)
    assert found.milliseconds == pytest.approx(predictor.measured(judged).milliseconds)
    assert found.low == pytest.approx(found.high)
    assert (found.kind, found.samples) == (PREDICTED, 0)


def test_every_piece_is_measured_once():
    predictor = Additive()
    for body in BODIES:
        predictor.sum(architecture(body))
    keys = [predictor.key(each) for each in predictor.timed]
    fresh = len(keys)
    for body in BODIES:
        predictor.sum(architecture(body))

    assert len(predictor.timed) == fresh
    assert len(set(keys)) == len({predictor.key(each) for each in predictor.timed})


def test_missing_pieces_are_timed_between_their_neighbours():
    predictor = Additive()
    predictor.sum(architecture("[gru, convolution, lstm]"))
    predictor.timed.clear()
    predictor.sum(architecture("[gru, convolution, feed_forward, lstm]"))

    named = [each.piece.block.type.name for each in predictor.timed]
    assert named == ["convolution", "feed_forward", "lstm"]
    assert shortened("abababab") == list("ababab") and shortened("a" * 9) == ["a"] * COPIES


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_small_model_is_no_sum_because_it_stays_in_the_caches(phase):
    predictor = Additive(setting=Setting(phase=phase, length=8))
    assert predictor.sum(architecture("[repeat: {times: 9, of: [gru, lstm]}]")).milliseconds > 0
    with pytest.raises(CannotCompose, match="it makes 3 calls only"):
        predictor.sum(architecture("[gru, lstm]"))


@pytest.mark.parametrize(("size", "time"), [(4, 1.0), (10, 1.0), (1000, 100.0), (100, 10.0), (2000, 200.0)])
def test_times_of_tensors_are_interpolated(size, time):
    assert interpolated((10, 1000), (1.0, 100.0), size) == pytest.approx(time)


@given(ratios=st.lists(st.floats(0.5, 2.0), min_size=3, max_size=20), factor=st.floats(0.1, 10.0))
def test_what_all_sums_are_wrong_by_alike_is_no_error(ratios, factor):
    one, other = CrossCheck(tuple(ratios)), CrossCheck(tuple(factor * each for each in ratios))

    assert other.factor == pytest.approx(factor * one.factor)
    assert other.error == pytest.approx(one.error, abs=1e-9)
    assert CrossCheck(one.ratios[:2]).error == math.inf


@pytest.mark.parametrize("count", [6, 12, 24])
@pytest.mark.parametrize("tail", [0.0, 0.1])
def test_the_interval_covers_what_it_says(count, tail):
    """Of a new architecture, if the errors are log-normal, and if a tenth of them is five times as large."""
    draw = random.Random(0)

    def ratio():
        return math.exp(draw.gauss(0.1, 0.25 if draw.random() < tail else 0.05))

    inside = 0
    for _ in range(2000):
        check, new = CrossCheck(tuple(ratio() for _ in range(count))), ratio()
        inside += check.factor / check.spread <= new <= check.factor * check.spread
    assert 0.93 <= inside / 2000 <= 0.98


def test_decoding_is_refused_where_a_block_cannot():
    encoder = Architecture.parse("kind: encoder\nwidth: 16\nvocabulary: 11\nbody: attention")
    with pytest.raises(ValueError, match="no phase 'decode'"):
        Additive(setting=Setting(phase="decode", length=8)).sum(encoder)


@pytest.mark.usefixtures("measured_once")
def test_a_training_step_is_pieces_and_the_optimiser():
    predictor = Predictor(table(), Setting(phase="train", length=8))
    model = architecture("[reversible: {of: [attention: {heads: 2}, feed_forward]}]")
    found = predictor.sum(model)

    sizes = [each.numel() for each in model.configured.build().parameters()]
    assert found.milliseconds > predictor.step(sizes) > 0
    assert "attention" in {row["operation"] for row in found.served}


LOADS = st.lists(st.floats(1.1, 3.0), min_size=6, max_size=6)


@settings(max_examples=5)
@given(loads=LOADS, time=st.floats(0.1, 100.0))
def test_a_load_that_slows_all_alike_changes_nothing_but_the_interval(loads, time):
    """The gauge and the model take `load` times as long in each build."""

    def slow(make, *_, **__):
        make()
        return [[Round((load * time,), load * 0.5)] * 4 for load in loads]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "timed", slow)
        found = latency(architecture("[feed_forward]").configured, SETTING, quiet=0.5)

    assert found.milliseconds == pytest.approx(time)
    assert found.low <= time and found.high >= time * max(loads)
    assert found.kind == MEASURED
    assert min(loads) <= found.load <= max(loads)


TABLE = Architecture.parse("kind: decoder\nwidth: 16\nvocabulary: 11\nposition: {learned: {length: 8}}\nbody: [gru]")


@pytest.mark.parametrize(("phase", "length"), [("prefill", 9), ("train", 9), ("decode", 8)])
def test_a_model_that_cannot_read_that_far_does_not_run(phase, length):
    """A decode step reads one position more than the prompt has."""
    predictor = Predictor(table(), Setting(phase=phase, length=length))
    with pytest.raises(CannotRun, match="learned supports at most 8 positions, but would read 9"):
        predictor.sum(TABLE)
    with pytest.raises(CannotRun, match="at most 8 positions"):
        predictor.measured(TABLE)
    assert predictor.check([TABLE], 1).ratios == ()
    assert not runs.impossible(TABLE.configured, Setting(phase=phase, length=length - 1))


def test_a_piece_that_does_not_run_alone_is_no_reason_to_stop(monkeypatch):
    def fails(*args):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(bench, "run", fails)
    with pytest.raises(CannotCompose, match="a piece does not run alone: RuntimeError: no such kernel"):
        Predictor(table(), SETTING).sum(architecture("[gru]"))


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), ValueError("no"), KeyboardInterrupt()])
def test_a_block_that_would_end_python_does_not_run_but_ctrl_c_is_no_error_of_it(error):
    raised = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else CannotRun
    with pytest.raises(raised), predicted.turned_into(CannotRun, "it does not run"):
        raise error


def test_a_dead_device_is_a_reason_to_stop(monkeypatch):
    def dies(*args):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(bench, "run", dies)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Predictor(table(), SETTING).sum(architecture("[gru]"))
