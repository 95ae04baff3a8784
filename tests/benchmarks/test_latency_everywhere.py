"""The count of outcomes is that of what happened, and errors are seen."""

import pytest

from benchmarks import latency_everywhere
from nas.latency.pieces import CannotCompose
from nas.latency.predicted import Predictor
from searchspace.model.architecture import Architecture


@pytest.fixture
def _once(monkeypatch):
    for where, name, value in latency_everywhere.ONCE:
        monkeypatch.setattr(where, name, value)


def model(body, kind="decoder"):
    head = f"kind: {kind}\nwidth: 16\nvocabulary: 11\nposition: {{learned: {{length: 64}}}}\n"
    return Architecture.parse(f"{head}body: {body}")


def test_every_outcome_is_counted(_once, monkeypatch):
    def sum_of_all_but_halting(self, architecture, sum=Predictor.sum):
        if "halting" in architecture.text():
            raise CannotCompose("its depth depends on the data")
        return sum(self, architecture)

    halting = "[halting: {times: 2, of: [feed_forward]}]"
    drawn = [("a", model("[gru]")), ("b", model(halting)), ("c", model("[gru]", "encoder"))]
    monkeypatch.setattr(Predictor, "sum", sum_of_all_but_halting)
    monkeypatch.setattr(latency_everywhere, "architectures", lambda seed: iter(drawn))
    monkeypatch.setattr(latency_everywhere, "LENGTHS", (7,))
    expected = {"phase": "decode", "sum": 1, "whole": 1, "no value": 1, "errors": 0}
    assert latency_everywhere.run("decode", 3, 0) == expected
    monkeypatch.setattr(latency_everywhere, "LENGTHS", (64,))
    assert latency_everywhere.run("decode", 3, 0)["no value"] == 3


def test_an_error_is_counted_and_printed(_once, monkeypatch, capsys):
    def fails(self, architecture):
        raise ValueError("a grid is too small")

    monkeypatch.setattr(latency_everywhere, "architectures", lambda seed: iter([("a", model("[gru]"))]))
    monkeypatch.setattr(Predictor, "sum", fails)
    assert latency_everywhere.run("prefill", 1, 0)["errors"] == 1
    assert "a grid is too small" in capsys.readouterr().err
