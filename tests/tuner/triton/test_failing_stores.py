"""A store that cannot be read or written never makes a call fail, and listeners close in any order."""

import sqlite3
import time
import warnings
from contextlib import closing

import pytest
import torch

import tuner
from tuner.search import backends
from tuner.search.backends import StoreFailed

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
TensorDescriptor = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor

from scaled_kernel import (  # noqa: E402
    allowed,  # noqa: F401
    call,
    scale,
    tuned,
)


class Broken:
    """A back end that cannot be read, or cannot be written."""

    def __init__(self, reads):
        self.reads = reads

    def rows(self, operation):
        if not self.reads:
            raise OSError("database is locked")
        return []

    def add(self, device, rows):
        raise PermissionError("read-only file system")

    def devices(self):
        return {}


@pytest.mark.parametrize("reads", [True, False], ids=["read-only", "locked"])
def test_a_store_that_fails_never_makes_a_call_fail(tmp_path, monkeypatch, reads):
    kernel = tuned(tmp_path)
    monkeypatch.setattr(kernel.options.backend, "backend", Broken(reads))

    with pytest.warns(RuntimeWarning, match="the stored results cannot be") as said:
        call(kernel)
        call(kernel)
        call(kernel, size=12)

    assert len(said) == 1 and said[0].filename == call.__code__.co_filename
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    with pytest.raises(StoreFailed):
        kernel.options.backend.add(None, [])


def test_a_call_waits_only_a_moment_for_a_locked_database(tmp_path, monkeypatch):
    assert backends.WAIT <= 3 and backends.LATER_WAIT <= 10  # seconds
    monkeypatch.setattr(backends, "LATER_WAIT", 0.05)
    kernel = tuned(tmp_path, store=tmp_path / "study.db")
    call(kernel)
    kernel.options.backend.backend.store.close()
    backends._opened.cache_clear()

    with closing(sqlite3.connect(tmp_path / "study.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.warns(RuntimeWarning, match="locked by another process, for more than 0.05 s"):
            call(kernel, size=12)

    assert time.monotonic() - began < 20
    assert "locked by another process" in kernel.explain(torch.ones(12), torch.ones(12), 12, 1.5).why


def test_a_listener_whose_store_fails_warns_once(tmp_path):
    listener = tuner.listen(tmp_path / "listened")
    listener.backend = Broken(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                listener(
                    fn=scale,
                    key=(16, "torch.float32"),
                    best_config=None,
                    configs_timings={triton.Config({"BLOCK": 16}): [1.0, 1.0, 1.0]},
                    duration=None,
                    cache_hit=False,
                )
    finally:
        listener.close()
    assert len([each for each in said if "cannot be written" in str(each.message)]) == 1


def test_a_listener_that_cannot_describe_a_kernel_warns(tmp_path):
    with tuner.listen(tmp_path / "listened") as listener, pytest.warns(RuntimeWarning, match="records nothing"):
        listener(fn=3, key=(), best_config=None, configs_timings={}, duration=None, cache_hit=False)


def test_listeners_close_in_any_order(tmp_path):
    from triton import knobs
    from triton.runtime.autotuner import Autotuner

    before = getattr(knobs.autotuning, "listener", None), Autotuner.run
    one, two = tuner.listen(tmp_path / "one"), tuner.listen(tmp_path / "two")
    one.close()
    assert (getattr(knobs.autotuning, "listener", None), Autotuner.run) != before, "the other one still listens"
    two.close()
    assert (getattr(knobs.autotuning, "listener", None), Autotuner.run) == before
