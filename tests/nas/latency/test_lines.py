"""Each line of a drawing consists of the pieces that its blocks call, as often as the model calls them."""

from collections import Counter

import pytest

from nas.latency.lines import per_line
from nas.latency.predicted import Predictor
from nas.latency.runs import Setting
from nas.latency.table import Entry, Table, piece_problem
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows

BODIES = [
    "[repeat: {times: 3, of: [residual: {of: {attention: {heads: 2}}}, residual: {of: feed_forward}]}, gru]",
    "[repeat: {times: 3, share_weights: true, of: [gru, residual: {of: feed_forward}]}]",
    "[reversible: {of: [gru, feed_forward]}]",
    "[halting: {of: [gru], times: 3}]",
]


def architecture(body):
    return Architecture.parse(f"kind: decoder\nwidth: 16\nvocabulary: 11\nbody: {body}")


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
@pytest.mark.parametrize("body", BODIES)
def test_the_lines_below_the_model_and_the_bare_model_are_the_whole(body, phase):
    model = architecture(body)
    setting = Setting(phase=phase, length=8, depth=2 if "halting" in body else None)
    drawn = rows(model, Shape(length=8, halting_steps=setting.depth))
    found, _ = per_line(model, setting)
    below = sum((each for row, each in zip(drawn, found, strict=True) if row.depth == 1), Counter())

    assert sum((found[0] - below).values()) == 1
    assert not below - found[0]


@pytest.mark.parametrize(("phase", "body"), [("train", BODIES[2]), ("train", BODIES[1]), ("prefill", BODIES[0])])
def test_the_times_of_all_lines_are_those_that_a_prediction_adds(phase, body):
    class Counting(Predictor):
        def _pieces(self, made):
            # the first empty piece only runs before the second
            self.added = Counter(piece_problem(self.setting, each) for each in made[1:])
            return {each: Entry(1.0, 1.0, 1.0, (), {"repeated": 1.0, "elements": ()}) for each in made}

        def step(self, sizes):
            return 0.0

    predictor = Counting(Table(), Setting(phase=phase, length=8))
    assert predictor.sum(architecture(body)).milliseconds == 1.0, "all but the model itself takes as long as nothing"
    found, empty = per_line(architecture(body), predictor.setting)

    assert predictor.added == found[0] + Counter([empty])
