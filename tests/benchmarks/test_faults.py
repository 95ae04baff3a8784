"""The counts of `benchmarks.faults` are 0 for a tuner that works, and see one that does not."""

from collections import Counter

import pytest

from benchmarks.faults import _rows, repeated
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from tuner import problems
from tuner.outcome import Kind, Outcome
from tuner.search.cache import Cache
from tuner.search.results import Results

PROBLEM = Problem("injected", "cpu", "float32", (("rows", 24),))
SERVED = {"served": ["right(number=0)"], "undecided": 0}
SPOILT = {
    "rows reported and not in the store": 1,
    "measured again without a reason": 1,
    "problems served wrong": 1,
    "problems without a choice": 1,
    "problems undecided": 1,
}


def said(number, kind, *, session=1, single=True):
    text = problems.configuration_text(Choice.of("right", {"number": number}))
    return [session, problems.text(PROBLEM, 1), "right", text, kind, single]


def table(tmp_path, reported, final=SERVED):
    """The counts with a bar, for a store that holds two measurements."""
    results = Results(tmp_path / "measurements.db")
    cache = Cache(results, "injected", fingerprint("cpu"), lambda name: "code", 1)
    for number, outcome in enumerate((Outcome(Kind.TIMED, (1.0,)), Outcome(Kind.TIMED_OUT))):
        cache.write(PROBLEM, {Choice.of("right", {"number": number}): outcome})
    rows = _rows(tmp_path, reported, Counter(), final)
    return {row["what"]: row["count"] for row in rows if row["bar"] == "0"}


def test_all_counts_are_0_if_nothing_is_wrong(tmp_path):
    found = table(tmp_path, [said(0, "timed"), said(1, "timed_out")])
    assert found == dict.fromkeys(SPOILT, 0)


@pytest.mark.parametrize("what", SPOILT)
def test_each_fault_is_counted(tmp_path, what):
    reported, final = [said(0, "timed"), said(1, "timed_out")], dict(SERVED)
    if what == "rows reported and not in the store":
        reported.append(said(2, "timed"))
    elif what == "measured again without a reason":
        reported = [said(0, "wrong"), said(0, "timed", session=2)]
    elif what == "problems undecided":
        final["undecided"] = 1
    else:
        final["served"] = ["None" if "without" in what else "wrong(number=0)"]
    assert table(tmp_path, reported, final)[what] == SPOILT[what]


def test_what_may_be_temporary_is_repeated_by_two_later_sessions():
    tried = [said(0, kind, session=session) for session, kind in enumerate(["timed_out", "killed", "out_of_memory"])]
    assert repeated(tried) == 0
    assert repeated([*tried, said(0, "timed", session=3)]) == 1, "that is once too often"
    assert repeated([said(0, "timed_out"), said(0, "timed")]) == 1, "a session repeats nothing"
    assert repeated([said(0, "timed"), said(0, "timed", single=False)]) == 0, "a comparison measures again"
    late = [said(0, "timed"), said(0, "timed_out", single=False), said(0, "timed", session=2)]
    assert repeated(late) == 0
