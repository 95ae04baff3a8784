"""How a short budget is divided over problems, and what is tried on problems that are similar to known ones."""

import pytest

from kernels.dispatch.registry import Choice, Problem
from tuner.outcome import Kind, Outcome
from tuner.search import plan


def problem(operation="x", dtype="float32", rows=1, **flags):
    return Problem(operation, "cpu", dtype, (("rows", rows),), tuple(flags.items()))


def test_one_problem_of_each_operation_comes_first_then_one_of_each_kind():
    some = [problem(rows=rows, gradients=gradients) for gradients in (False, True) for rows in (64, 1, 8)]
    other = problem("y", rows=4)

    first, second, rest = plan.order([*some, other])

    assert first == [some[2], other]
    assert second == [some[5]]
    assert rest == [some[1], some[4], some[0], some[3]]


class Known:
    """A cache that knows times of some problems."""

    def __init__(self, times):
        self.times = times

    def decided(self):
        return list(self.times)

    def known(self, problem):
        from tuner.search.cache import Known as Measured

        found = self.times[problem].items()
        return {choice: Measured(Outcome(Kind.TIMED, (time,)), time) for choice, time in found}


def test_what_is_likely_was_fast_on_the_most_similar_problem(faulty):
    right = {block: Choice.of("right", {"block": block}) for block in (4, 8, 16)}
    near = {right[8]: 2.0, right[16]: 1.0, Choice.of("slow"): 9.0}
    far = {right[8]: 1.0, right[4]: 0.9}
    known = Known({faulty.problem(32): near, faulty.problem(8): far})

    assert plan.likely(faulty.FAULTY, faulty.problem(48), known) == [right[16], right[4]]
    assert plan.likely(faulty.FAULTY, faulty.problem(10), known) == [right[4]], "16 rows do not fit"
    assert plan.likely(faulty.FAULTY, faulty.problem(32), Known({faulty.problem(32): near})) == []


@pytest.mark.parametrize("name", ["no_longer_there", "built"])
def test_what_cannot_run_or_takes_long_to_build_is_not_likely(faulty, name, monkeypatch):
    from kernels.dispatch.registry import Implementation

    several = {**faulty.FAULTY.implementations, "built": Implementation("built", faulty.right, builds=True)}
    operation = type(faulty.FAULTY)(**{**vars(faulty.FAULTY), "implementations": several})
    known = Known({faulty.problem(32): {Choice.of(name): 1.0}})
    assert plan.likely(operation, faulty.problem(16), known) == []
