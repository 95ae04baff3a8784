"""What an export tells of where its architecture comes from."""

from nas.exports.origin import _latency
from nas.store import Trial, TrialState


def test_each_latency_has_the_device_of_its_own_objective(describe):
    laptop = "{latency: {on: {machine: laptop}, name: laptop_ms}}"
    gpu = "{latency: {device: 'cuda:1', on: {machine: server}, name: gpu_ms}}"
    found = {"milliseconds": 1.5, "phase": "prefill", "batch": 1, "length": 8, "threads": 1, "device": {"key": "a"}}
    evidence = dict.fromkeys(("laptop_ms", "gpu_ms", "rescored_ms"), found)  # as an earlier version kept it
    evidence["server_ms"] = found | {"device": {"key": "a", "asked": "cuda"}}  # of nas rescore
    trial = Trial(
        id=1, number=0, purpose="search", seed=0, state=TrialState.COMPLETE, rung=0, architecture_hash="a", values={},
        evidence=evidence,
    )  # fmt: skip
    told = _latency(describe(objectives=f"[loss, {laptop}, {gpu}]"), trial)
    assert {name: each["on"] for name, each in told.items()} == {
        "laptop_ms": "cpu",
        "gpu_ms": "cuda:1",
        "rescored_ms": "cpu",
        "server_ms": "cuda",
    }
