"""Children that measure at once, and a session over the operation with faults."""

import pytest

from tuner.measure.children import Children, TimeIsUp
from tuner.measure.roofline import Rates
from tuner.outcome import Kind, Outcome
from tuner.search.session import tune


class Pretended(Children):
    """Children that measure at once: what is wrong or dies is as in the operation with faults, times are made up."""

    def __init__(self, settings, patience=None):
        super().__init__(settings, patience)
        self.asked = []
        self.speed = {"right": 1.0, "slow": 9.0, "small": 2.0}
        self.interrupt_at = None
        self.rates = Rates(lambda probe: 1e9)

    def run(self, job):
        if self.left() <= 0:
            raise TimeIsUp
        self.asked.append(job.choices)
        if self.interrupt_at is not None and len(self.asked) > self.interrupt_at:
            raise KeyboardInterrupt
        return tuple(self.outcome(choice, job.repeats) for choice in job.choices)

    def outcome(self, choice, repeats):
        name = choice.implementation
        if name not in self.speed:
            return Outcome(Kind.WRONG if "wrong" in name else Kind.CRASHED, message=name)
        block = dict(choice.configuration).get("block", 8)
        base = self.speed[name] * (0.5 if block == 16 else 1.0)
        return Outcome(Kind.TIMED, tuple(base * (1 + 0.01 * (number % 3)) for number in range(repeats)))


@pytest.fixture
def pretending():
    """The class of the children, whose methods a test may replace."""
    return Pretended


@pytest.fixture
def pretended(monkeypatch):
    made = []

    def make(settings, patience):
        made.append(Pretended(settings, patience))
        return made[-1]

    monkeypatch.setattr("tuner.search.session.Children", make)
    monkeypatch.setattr("tuner.search.session.building_processes", lambda device: 0)
    return made


@pytest.fixture
def run():
    """`run(store, faulty, rows, ..., effort="full")`: a session over problems with these rows; returns its report."""

    def call(store, faulty, *rows, **options):
        problems = [faulty.problem(each) for each in rows or (32,)]
        return tune({"faulty": problems}, store=store, **({"threads": 1, "effort": "quick"} | options))

    return call
