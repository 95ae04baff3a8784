"""What `triton.autotune` measures is recorded, with whatever version of Triton tells it or does not."""

import json

import pytest
import torch

import tuner
from tuner.search.results import STORAGE, results_at
from tuner.triton import listener as listener_module

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

SPEED = {16: [3.0, 2.9, 3.1], 32: [1.0, 0.9, 1.1], 64: [float("inf")] * 3}


@triton.jit
def negate(x_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + places, -tl.load(x_ptr + places, mask=places < size), mask=places < size)


class Autotuned:
    """`negate` under `triton.autotune`, with times that are made up: those of SPEED in the order of the blocks."""

    def __init__(self):
        left = []

        def do_bench(call, quantiles):
            left.extend([] if left else SPEED.values())
            return left.pop(0)

        configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in SPEED]
        self.kernel = triton.autotune(configs, key=["size"], do_bench=do_bench)(negate)

    def __call__(self, size=40, dtype=torch.float32):
        x = torch.ones(size, dtype=dtype)
        self.kernel[(triton.cdiv(size, 16),)](x, size)
        return x


@pytest.fixture
def silent(monkeypatch):
    """Nothing of the machine's own is written to."""
    monkeypatch.delenv(STORAGE, raising=False)


def test_every_configuration_is_recorded_in_the_study_database(tmp_path, silent):
    kernel = Autotuned()
    with tuner.listen(tmp_path / "study.db") as listener:
        assert torch.equal(kernel(), -torch.ones(40))
        kernel()  # known by now
        kernel(48)
    kernel(56)

    pytest.importorskip("sqlalchemy")
    from nas.store import open_store

    with open_store(tmp_path / "study.db") as store:
        rows = store.measurements(f"{negate.fn.__module__}.negate")
        assert set(store.devices()) == {row.device for row in rows}
    assert listener.recorded == len(rows) == 6
    first = rows[0]
    assert json.loads(first.configuration)["BLOCK"] == 16
    assert (first.milliseconds, first.dtype, json.loads(first.problem)["sizes"]) == (3.0, "float32", [["size", 40]])
    assert rows[2].failure == "build_error" and "no time" in rows[2].message


def test_another_dtype_is_another_problem(tmp_path, silent):
    kernel = Autotuned()
    with tuner.listen(tmp_path / "folder"):
        kernel(40)
        kernel(40, torch.float64)

    rows = results_at(tmp_path / "folder").rows(f"{negate.fn.__module__}.negate")
    assert len({row.problem for row in rows}) == 2


def test_what_triton_read_from_its_disk_is_recorded_once(tmp_path, silent):
    told = {"fn": negate, "key": (40, "torch.float32"), "best_config": None, "duration": None, "cache_hit": True}
    timings = {triton.Config({"BLOCK": block}): times for block, times in SPEED.items()}

    for _ in range(2):
        with tuner.listen(tmp_path / "folder") as listener:
            listener(**told, configs_timings=timings)

    assert len(results_at(tmp_path / "folder").rows(f"{negate.fn.__module__}.negate")) == 3


def test_a_listener_of_triton_is_used_where_there_is_one_and_the_one_before_is_told_too(tmp_path, silent, monkeypatch):
    from triton import knobs

    said = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **told: said.append(told), raising=False)
    monkeypatch.setattr(listener_module, "_install", listener_module._install.__wrapped__)
    told = {"fn": negate, "key": (40, "torch.float32"), "best_config": None, "duration": 1.0, "cache_hit": False}
    told["configs_timings"] = {triton.Config({"BLOCK": 16}): SPEED[16]}

    with tuner.listen(tmp_path / "folder") as listener:
        knobs.autotuning.listener(**told)
    knobs.autotuning.listener(**told)

    assert (listener.recorded, len(said)) == (1, 2)


def test_listeners_close_in_any_order(tmp_path, silent):
    kernel = Autotuned()
    one, two = tuner.listen(tmp_path / "one"), tuner.listen(tmp_path / "two")
    one.close()
    kernel(40)
    two.close()
    kernel(48)
    assert (one.recorded, two.recorded) == (0, 3)


def test_a_listener_that_cannot_record_warns_once(tmp_path):
    told = {"key": (16, "torch.float32"), "best_config": None, "duration": None, "cache_hit": False}
    times = {triton.Config({"BLOCK": 16}): [1.0, 1.0, 1.0]}
    with tuner.listen(tmp_path) as listener, pytest.warns(RuntimeWarning, match="records nothing") as said:  # a folder
        for _ in range(2):
            listener(fn=negate, configs_timings=times, **told)
    assert len(said) == 1
    with tuner.listen(tmp_path / "listened") as listener, pytest.warns(RuntimeWarning, match="records nothing"):
        listener(fn=3, configs_timings={}, **told)
