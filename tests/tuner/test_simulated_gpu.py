"""A session on simulated GPUs: memory that runs out, contexts that die, and two different GPUs in one machine."""

import resource

import pytest
import torch
from simulated_gpu import Gpu, OnGpu, two

from kernels.attention.problems import shared_memory
from kernels.dispatch import device as devices
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Implementation
from tuner.measure.measure import flush_bytes
from tuner.measure.precompile import elsewhere
from tuner.measure.worker import Settings, Worker
from tuner.search.results import Results, copied
from tuner.search.session import tune

GIB = 2**30


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with 1 GiB on which all sessions of a test run."""
    found = Gpu(memory=GIB)
    monkeypatch.setattr(OnGpu, "gpu", found, raising=False)
    monkeypatch.setattr(OnGpu, "clock", found.patch(monkeypatch), raising=False)
    monkeypatch.setattr("tuner.search.session.Children", OnGpu)
    return found


@pytest.fixture
def session(gpu, store, faulty, changed):
    """`session(name=call)`: tune the operation with `right` (2 ms) and these implementations; files: of their code."""

    def timed(busy, before=lambda: None):
        def call(x, w):
            before()
            gpu.launch(busy)
            return x * w

        return call

    def run(files=(), **calls):
        made = {
            name: Implementation(name, timed(*some), files=files) for name, some in {"right": (2.0,), **calls}.items()
        }
        for name in (*faulty.FAULTS, "small"):
            faulty.FAULTY.implementations.pop(name, None)
        changed(faulty, **made)
        problem = faulty.problem(8, gradients=False)
        return tune({"faulty": [problem]}, store=store, threads=1, budget_seconds=600.0)

    return run


def test_a_choice_that_lacks_memory_while_others_use_it_is_tried_again_and_may_win(gpu, session):
    fast = {"fast": (0.5, lambda: gpu.allocate(GIB // 2))}
    gpu.used = 3 * GIB // 4

    (before,) = session(**fast).decisions
    gpu.used = 0
    (after,) = session(**fast).decisions

    assert (before.choice.implementation, dict(before.failures)) == ("right", {"out_of_memory": 1})
    assert (after.choice.implementation, dict(after.failures)) == ("fast", {})
    assert after.milliseconds == pytest.approx(0.5)


def test_a_context_that_dies_is_replaced_and_only_its_choice_is_blamed(gpu, session):
    (decision,) = session(dies=(0.1, gpu.die), fast=(1.0,)).decisions

    assert dict(decision.failures) == {"crashed": 1}
    assert decision.choice.implementation == "fast" and decision.milliseconds == pytest.approx(1.0)
    assert not gpu.is_dead


def test_a_context_that_dies_while_it_is_timed_takes_no_other_result_with_it(gpu, session):
    calls = []

    def late():
        calls.append(None)
        if len(calls) == 6:
            gpu.die()

    (decision,) = session(late=(0.1, late), fast=(1.0,)).decisions

    assert dict(decision.failures) == {"crashed": 1}
    assert decision.choice.implementation == "fast"


def test_what_compiled_kernels_use_is_stored_with_their_times(gpu, session, store, monkeypatch, tmp_path):
    pytest.importorskip("triton")
    forward = gpu.compile(monkeypatch, registers=168, spills=0, shared=49152, warps=4)
    backward = gpu.compile(monkeypatch, registers=255, spills=12, shared=0, warps=8)

    session(("kernels.rowwise.softmax_triton",), fused=(0.5, lambda: (forward(0.2), backward(0.2))))

    used = {"registers": 255, "spills": 12, "shared": 49152, "warps": 8}
    rows = store.rows("faulty")
    assert {(row.implementation, str(row.resources)) for row in rows} == {("right", "None"), ("fused", str(used))}
    assert len(rows) == 4, "measured, and compared in turns"
    assert copied(store, other := Results(tmp_path / "other.db")) == 4
    assert [each.resources for each in other.rows("faulty")] == [row.resources for row in rows]


def test_two_gpus_of_a_machine_are_told_apart(monkeypatch):
    small, large = Gpu("Small", cache=50 * 2**20), Gpu("Large", cache=400 * 2**20)
    current = two(monkeypatch, small, large)
    devices._cuda.cache_clear()
    monkeypatch.setattr(devices, "_driver", lambda: "1.0")
    monkeypatch.setattr("tuner.measure.worker.clock_of", lambda device: None)
    try:
        assert [fingerprint(each).name for each in ("cuda", "cuda:0", "cuda:1")] == ["Small", "Small", "Large"]
        assert fingerprint("cuda:0").key != fingerprint("cuda:1").key
    finally:
        devices._cuda.cache_clear()
    assert flush_bytes(torch.device("cuda:1")) == 2 * large.cache > flush_bytes(torch.device("cuda:0"))
    assert shared_memory() == small.cache // 256

    Worker(Settings("cuda:1"))
    assert current[-1] == 1, "what a problem calls cuda is the GPU that is tuned"
    assert shared_memory() == large.cache // 256
    assert elsewhere("cuda:1").number == 1 and elsewhere("cuda:1").target.arch == 90


def test_a_worker_limits_the_memory_of_a_process_of_its_own_alone():
    before = resource.getrlimit(resource.RLIMIT_AS)
    Worker(Settings("cpu", memory=2**34))
    assert resource.getrlimit(resource.RLIMIT_AS) == before
