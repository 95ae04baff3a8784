"""A check: what a block promises, and the cases that promise it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from searchspace.checking.cases import Case


@dataclass(frozen=True)
class Check:
    """`run` raises AssertionError if a case breaks its promise. on: whether a case makes this promise."""

    run: Callable[[Case], None]
    on: Callable[[Case], bool]

    @property
    def name(self) -> str:
        """The promise as a sentence."""
        return self.run.__name__.strip("_").replace("_", " ")

    def __call__(self, case: Case) -> None:
        """Check one case with fixed random numbers. Raises AssertionError, or whatever the block raises."""
        torch.default_generator.manual_seed(0)
        self.run(case)


def always(case: Case) -> bool:
    """Every case makes this promise."""
    return True


def once(case: Case) -> bool:
    """Each varied option makes this promise in one direction, the defaults in both.

    For numbers and states: code for an option, and code for a direction, then both run, and what a direction changes
    for an option, which is the positions that are read, is the subject of other checks.
    """
    return not case.again


def failures(checks: Iterable[Check], cases: Iterable[Case]) -> dict[Check, dict[str, Exception]]:
    """What each check found: the error of every case that breaks the promise, by the case's id."""
    every = list(cases)
    return {each: _failures(each, every) for each in checks}


def _failures(check: Check, cases: Iterable[Case]) -> dict[str, Exception]:
    found: dict[str, Exception] = {}
    for case in cases:
        if check.on(case):
            try:
                check(case)
            except Exception as error:  # of the block, which is a user's own code
                found[case.id] = error
    return found


def ensure(condition: object, message: str) -> None:
    """Raise AssertionError with `message` unless `condition` holds."""
    if not condition:
        raise AssertionError(message)


def near(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Raise AssertionError if two tensors of one shape differ by more than `tolerance`, absolutely or relatively."""
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance, msg=lambda text: f"{what}: {text}")
