"""The table of kernels that are compiled without a device. The compilation itself needs a process without Triton's
interpreter; `tests/kernels/test_ahead_of_time.py` has one."""

import pytest

from benchmarks.gpu import ahead_of_time
from kernels.dispatch import registry


def test_a_kernel_has_one_row_with_all_targets():
    softmax = {"operation": "softmax", "kernel": "softmax._forward"}
    found = [
        {**softmax, "target": "sm_80", "registers": 40, "spilled": 0, "shared": 512},
        {**softmax, "target": "gfx942", "failure": "CompilationError: no"},
        {"operation": "softmax", "kernel": "softmax._backward", "target": "sm_80", "registers": 1, "spilled": 8},
    ]
    assert ahead_of_time.together(found) == [
        {**softmax, "sm_80": "40 / 0 / 0.5", "gfx942": "CompilationError: no"},
        {"operation": "softmax", "kernel": "softmax._backward", "sm_80": "1 / 8 / 0.0"},
    ]


def test_every_operation_with_a_triton_kernel_has_a_problem_to_compile():
    some = [each for each in registry.operations().values() if any(i.is_triton for i in each.implementations.values())]
    assert len(some) > 10
    for operation in some:
        problem = ahead_of_time._problem(operation)
        assert problem is not None and (problem.device, problem.dtype) == ("cpu", "bfloat16"), operation.name


def test_an_unknown_target_is_refused(monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("sys.argv", ["ahead_of_time", "--targets", "sm_12"])
    with pytest.raises(SystemExit, match="2"):
        ahead_of_time.main()
    assert "unknown target 'sm_12'; known: sm_80" in capsys.readouterr().err
