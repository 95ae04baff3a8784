"""The table of kernels that are compiled without a device. The compilation itself needs a process without Triton's
interpreter; `tests/kernels/test_ahead_of_time.py` has one."""

import importlib

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


def test_kernels_that_few_problems_launch_have_a_call_of_their_own():
    calls = {name: list(ahead_of_time._calls(registry.operation(name))) for name in ("softmax", "attention", "rotary")}
    assert [dict(choice.configuration)["step"] for _, choice in calls["softmax"]] == [0, 1024]
    assert [dict(problem.flags)["bias"] for problem, _ in calls["attention"]] == ["none", "learned"]
    assert len(calls["rotary"]) == 1
    for name, (changes, parameters) in ahead_of_time.FURTHER.items():
        (problem, choice), *_ = ahead_of_time._calls(registry.operation(name))
        assert changes.keys() <= dict(problem.flags + problem.sizes).keys()
        assert parameters.keys() <= dict(choice.configuration).keys()


def test_knows_every_kernel_that_is_launched():
    names = ahead_of_time.launched()
    assert {"rowwise.softmax._forward_in_steps", "attention.kernels._backward_bias", "rowwise.rotary._rotate"} <= names
    for name in names:
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(f"kernels.{module}_triton"), function).fn), name


def test_an_unknown_target_is_refused(monkeypatch, capsys):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr("sys.argv", ["ahead_of_time", "--targets", "sm_12"])
    with pytest.raises(SystemExit, match="2"):
        ahead_of_time.main()
    assert "unknown target 'sm_12'; known: sm_80" in capsys.readouterr().err
