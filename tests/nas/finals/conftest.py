"""Finals that take milliseconds: results are looked up, and speeds are made up."""

import dataclasses

import numpy as np
import pytest

from nas.documents import Documents
from nas.finals import speed


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Speeds are measured in one test only."""
    monkeypatch.setattr(speed, "in_turns", lambda config, architectures: [1000.0] * len(architectures))


def with_documents(outcome, count=8):
    """The outcome with the score of each document: the loss of the whole, spread around its mean."""
    spread = np.linspace(-0.1, 0.1, count)
    names = tuple(f"document {place}" for place in range(count))
    documents = {
        split: Documents("loss", names, (outcome.metrics[name] + spread) * 10, np.full(count, 10.0))
        for split, name in (("validation", "loss"), ("test", "test/loss"))
    }
    return dataclasses.replace(outcome, documents=documents)


@pytest.fixture
def documented(table):
    """`table` with scores by document, and a loss that is lowest at the learning rate 0.003."""

    def run(work, progress=None):
        outcome = table(work)
        rate = work.recipe.get("learning_rate", 0.003)
        worse = abs(np.log(rate / 0.003))
        metrics = {name: value + worse for name, value in outcome.metrics.items()}
        return with_documents(dataclasses.replace(outcome, metrics=metrics))

    return run
