"""The hash of the code that latencies depend on changes with what is computed and with nothing else."""

import pytest

from nas.latency import bench, chain, gauge, measured, optimiser, runs
from nas.latency.code import RUNS, hash_of
from tuner.measure import core

FILE = '''"""A module."""
import math


def area(radius: float) -> float:
    """Of a circle."""
    if radius < 0:
        raise ValueError(f"negative: {radius}")
    assert radius < 100, "large"
    return math.pi * radius**2


@block("disc", published=Published("as in the paper"))
class Disc:
    pass


LIMIT = 3
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A module.", "Another text."),
        ("Of a circle.", "Of a disc."),
        ("as in the paper", "with another sign"),
        (', published=Published("as in the paper")', ""),
        ("import math", "import math  # pi\nfrom os import path"),
        ('f"negative: {radius}"', '"a radius is positive"'),
        ('"large"', '"too large"'),
        ("LIMIT = 3\n", "\n\nLIMIT = 3  # a comment\n"),
    ],
)
def test_prose_and_imports_do_not_count(old, new):
    assert old in FILE
    assert hash_of([FILE.replace(old, new)]) == hash_of([FILE])


@pytest.mark.parametrize(("old", "new"), [("**2", "**3"), ("< 100", "< 99"), ("LIMIT = 3", "LIMIT = 4")])
def test_a_computation_counts(old, new):
    assert hash_of([FILE.replace(old, new)]) != hash_of([FILE])


def test_the_file_that_a_function_is_in_does_not_count():
    head, tail = FILE.split("\n\n\nLIMIT", 1)
    assert hash_of([head, f"LIMIT{tail}"]) == hash_of([FILE]) == hash_of([f"LIMIT{tail}", head])


TIMING = [gauge.gauge, chain.timed, bench.run, runs.run, measured.latency, optimiser.Optimiser, core.one_core]


@pytest.mark.parametrize("part", TIMING)
def test_what_times_a_model_counts(part):
    assert part.__module__ in RUNS
