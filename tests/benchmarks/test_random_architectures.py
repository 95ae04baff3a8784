import random

import pytest
import torch

from benchmarks import random_architectures
from benchmarks.random_architectures import Tried, attempt, space
from benchmarks.support.spaces import EVERYTHING
from searchspace.cost import Cost
from searchspace.model.architecture import Architecture

PLAIN = "kind: decoder\nwidth: 16\nvocabulary: 256\nbody: {residual: {of: {attention: {heads: 2}}}}\n"


def test_forty_random_architectures_of_everything_work():
    tally, failures = random_architectures.run(40, seed=1)
    assert failures == []
    assert sum(counts["gradients"] for counts in tally.values()) == 40
    assert sum(counts["streaming"] for counts in tally.values()) > 12


def test_only_sizes_are_small():
    for kind in EVERYTHING:
        drawn = space(kind).sample(random.Random(0)).architecture
        assert drawn.root.fields["width"] <= 64
        assert space(kind).size().discrete > 10**50


def test_every_check_can_fail(monkeypatch):
    architecture = Architecture.parse(PLAIN)
    seen: list[str] = []
    assert attempt(architecture, 9, seen.append) is None
    assert seen == ["builds", "parameters", "flops", "gradients", "streaming"]
    with monkeypatch.context() as patched:
        patched.setattr(Tried, "cost", lambda self, **changes: Cost(parameters=1))
        assert attempt(architecture, 9, seen.append)[0] == "parameters"
    with monkeypatch.context() as patched:
        patched.setattr(Tried, "parameters", lambda self: None)
        patched.setattr(Tried, "cost", lambda self, **changes: Cost(flops=1))
        assert attempt(architecture, 9, seen.append)[0] == "flops"
    tried = Tried(architecture, 9)
    tried.model.unused = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(AssertionError, match="no gradient in unused"):
        tried.gradients()
