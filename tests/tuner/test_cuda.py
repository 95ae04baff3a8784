"""Tuning on a GPU: our operations, somebody's kernels, records; and nothing inside the capture of a graph."""

import json

import pytest
import torch

import tuner
from kernels.dispatch import registry, tuned
from tuner.replay import record
from tuner.search import tables
from tuner.search.session import tune
from tuner.triton.kernel import SWITCH

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


@triton.jit
def add(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    total = tl.load(x_ptr + places, mask=inside) + tl.load(y_ptr + places, mask=inside)
    tl.store(out_ptr + places, total, mask=inside)


@triton.jit
def wait(x_ptr, out_ptr, size, BLOCK: tl.constexpr, FOREVER: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FOREVER:
        found = tl.load(x_ptr, volatile=True)
        while found == 0.0:
            found = tl.load(x_ptr, volatile=True)
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < size) + 1.0, mask=places < size)


def grid(meta):
    return (triton.cdiv(meta["size"], meta["BLOCK"]),)


def decorated(folder, **options):
    space = {"BLOCK": [128, 1024, 4096], "num_warps": [1, 4]}
    return tuner.tune(space=space, key=["size"], store=folder, **options)(add)


def arguments(size=2**20):
    return torch.randn(size, device="cuda"), torch.randn(size, device="cuda"), torch.empty(size, device="cuda"), size


def test_somebodys_kernel_is_tuned_and_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "on")
    kernel = decorated(tmp_path)
    x, y, out, size = arguments()

    kernel[grid](x, y, out, size)

    torch.testing.assert_close(out, x + y)
    (decision,) = kernel.decisions.values()
    assert decision.candidates == 6
    assert "it was tuned" in decorated(tmp_path).explain(x, y, out, size).why


def test_nothing_is_tuned_inside_the_capture_of_a_graph(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "on")
    kernel = decorated(tmp_path)
    x, y, out, size = arguments()
    add[grid](x, y, out, size, BLOCK=128, num_warps=1)  # compiled before: a module cannot be loaded in a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()

    with torch.cuda.graph(graph):
        kernel[grid](x, y, out, size)
    out.zero_()
    graph.replay()

    torch.testing.assert_close(out, x + y)
    assert not kernel.decisions and not list(tmp_path.iterdir())


def test_a_kernel_that_never_ends_does_so_in_another_process(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "on")
    configs = [{"BLOCK": 128, "FOREVER": False}, {"BLOCK": 256, "FOREVER": True}, {"BLOCK": 512, "FOREVER": False}]
    kernel = tuner.tune(configs=configs, key=["size"], store=tmp_path, limit=20.0)(wait)
    x, out = torch.zeros(1024, device="cuda"), torch.empty(1024, device="cuda")

    kernel[grid](x, out, 1024)

    assert bool((out == 1).all()), "the device of this process still works"
    (decision,) = kernel.decisions.values()
    assert decision.failures == {"timed_out": 1}


def test_runs_inside_torch_compile(tmp_path, monkeypatch):
    monkeypatch.setenv(SWITCH, "on")
    kernel = decorated(tmp_path)

    def added(x, y):
        out = torch.empty_like(x)
        kernel[grid](x, y, out, x.numel())
        return out

    x, y, _, _ = arguments()
    torch.testing.assert_close(torch.compile(added, fullgraph=True)(x, y), x + y)
    assert not kernel.decisions


def test_an_operation_is_tuned_and_served_and_not_slower_than_its_default(tmp_path, monkeypatch):
    monkeypatch.setenv(tuned.TABLES, str(tmp_path))
    tuned.use("cuda", None)
    operation = registry.operation("softmax")
    problem = operation.problem("cuda", "bfloat16", (4096, 4096), (False,))

    report = tune({"softmax": [problem]}, device="cuda", effort="quick")
    tables.update("cuda", report.decisions, report.threads)

    assert tuned.explain(operation, problem).why == "exact"
    (checked,) = tables.verify("cuda", tuned.table("cuda").entries.values(), report.threads)
    assert checked.sound
    tuned.use("cuda", None)


def test_a_space_is_recorded(tmp_path):
    problem = registry.operation("softmax").problem("cuda", "bfloat16", (64, 256), (False,))

    report = record.record([problem], device="cuda", folder=tmp_path, samples=3, most=60)

    assert report.whole and report.left == 0
    assert json.dumps(report.whole)
