"""The energy of a call, where the device reports it: RAPL on a CPU (Linux), NVML on an NVIDIA GPU.

RAPL: the counter of each processor package, in microjoules, under /sys/class/powercap. It counts everything that runs
on the package. NVML: the total of the GPU since its driver was loaded, in millijoules. Calls are repeated, because the
counters are updated about every millisecond on a CPU and every 20 to 100 milliseconds on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from nas.latency.runs import Run

RAPL = Path("/sys/class/powercap")
SECONDS = 0.5  # of calls at least
NOT_REPORTED = "not reported by this device"

Counter = Callable[[], float]  # joules so far


def counter(device: torch.device) -> Counter | None:
    """The energy counter of a device; None if it has none that this process may read."""
    return _of_gpu(device) if device.type == "cuda" else _of_packages()


def joules(run: Run, device: torch.device, seconds: float = SECONDS) -> float | None:
    """The mean energy of one call, preparation left out if there are counters; None if the device reports none."""
    read = counter(device)
    if read is None:
        return None
    spent, calls, end = 0.0, 0, time.monotonic() + seconds
    while not calls or time.monotonic() < end:
        run.prepare()
        before = read()
        run.all()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent += max(0.0, read() - before)  # a counter starts again at zero when it overflows
        calls += 1
    return spent / calls


def why_none(device: str) -> str:
    """Why there may be no counter, and what helps, as a sentence."""
    if device.startswith("cuda"):
        return "the GPU reports no energy: it needs the package nvidia-ml-py and a GPU with a counter (Volta or later)."
    return f"the CPU reports no energy: there is no counter {RAPL}/intel-rapl:*/energy_uj that this process may read."


def _of_packages() -> Counter | None:
    files = sorted(RAPL.glob("intel-rapl:[0-9]/energy_uj"))

    def read() -> float:
        return sum(int(file.read_text()) for file in files) / 1e6

    try:
        return read if files and read() >= 0 else None
    except (OSError, ValueError):  # only root may read it on many systems
        return None


def _of_gpu(device: torch.device) -> Counter | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # no pynvml, no driver, or a GPU without a counter
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
