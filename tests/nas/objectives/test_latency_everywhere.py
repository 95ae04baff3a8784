"""Every architecture of the largest spaces has a latency in every phase, or a reason why it has none."""

import random
from functools import cache
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nas.latency import predicted
from nas.latency.predicted import Predictor
from nas.latency.runs import PHASES
from nas.latency.table import Table
from nas.objectives import make
from nas.objectives.contract import NoValue, Search
from searchspace.cost import Shape
from searchspace.model.build import cost
from searchspace.space.space import Space

SPACES = Path(__file__).parents[3] / "examples" / "spaces"
SMALL = 500_000  # parameters
TABLE = Table()


@cache
def space(name):
    given = {"vocabulary": 16, "source_vocabulary": 16} if name.endswith("encoder_decoder") else {}
    return Space.load(SPACES / f"{name}.yaml", given)


def small(name, seed):
    drawn = (space(name).sample(random.Random(f"{seed}/{number}")).architecture for number in count())
    return next(each for each in drawn if cost(each, Shape(length=64)).parameters < SMALL)


@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["everything", "everything_encoder", "everything_encoder_decoder"]),
    phase=st.sampled_from([*PHASES, "first_token"]),
    shape=st.sampled_from([(1, 4), (7, 1), (64, 4), (512, 1)]),
)
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_there_is_a_value_with_an_interval_or_a_reason(measured_once, monkeypatch, seed, name, phase, shape):
    length, batch = shape
    options = {"phase": phase, "length": length, "batch": batch, "threads": 1, "method": "predicted"}
    objective = make({"latency": options}, Shape(length=length))
    monkeypatch.setattr(objective, "_checked", lambda: predicted.CrossCheck((1.0, 1.1, 0.9)))
    objective.begin(Search())
    objective._predictor = Predictor(TABLE, objective.setting)
    architecture = small(name, seed)
    try:
        value, found = objective.evaluate(architecture), objective.evidence(architecture)
    except NoValue as error:
        assert str(error).startswith(f"objective {phase}_ms: ") and str(error).endswith(".")
        return
    assert 0 < found["low"] <= value <= found["high"] < float("inf")
    assert found["kind"] == "predicted" or phase == "first_token" or found["not_predicted"]
