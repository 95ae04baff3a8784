"""Mutants of our kernels are found, in Triton's interpreter; `benchmarks.faults --mutants` checks all of them."""

import pytest
import torch

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("the mutants of the benchmark run in the interpreter", allow_module_level=True)

from benchmarks.support.mutants import TARGETS, check, mutants, reason

QUICK = ("softmax", "rms_norm")  # the others take seconds each


def test_there_are_many_mutants_of_many_kernels():
    known = mutants()
    assert len(known) >= 60
    assert {each.target for each in known} == set(TARGETS)


@pytest.mark.parametrize("mutant", [each for each in mutants() if each.target in QUICK], ids=str)
def test_a_mutant_is_found(mutant):
    found = check(mutant)
    assert found is not None and not found.startswith("raises"), mutant.fault


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", QUICK)
def test_the_kernel_itself_is_not_rejected(name, dtype):
    assert reason(TARGETS[name], dtype) is None
