"""How much memory there is for copies."""

import sys

import psutil
import torch

from tuner.triton.checking.buffers import available


def test_the_memory_of_a_cpu_is_known_with_and_without_psutil(monkeypatch):
    total = psutil.virtual_memory().total
    assert 0 < available(torch.device("cpu")) <= total
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert 0 < available(torch.device("cpu")) <= total
