"""The memory and the energy that a call needs: measured, and as the costs of an architecture declare it.

Memory. On a GPU the allocator counts. On a CPU the results of all operations are counted while they are alive, and the
weights are added: buffers inside one operation are not seen.

Energy, where the device reports it. RAPL on a CPU (Linux): the counter of each processor package, in microjoules, under
/sys/class/powercap, which counts everything that runs on the package. NVML on an NVIDIA GPU: the total since its driver
was loaded, in millijoules. Calls are repeated, because the counters are updated about every millisecond on a CPU and
every 20 to 100 milliseconds on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from nas.latency.runs import Run, Setting
from searchspace.cost import Shape
from searchspace.registry import Configured

FLOAT = 4  # bytes
KEPT_IN_TRAINING = 4  # weights, gradients, and the two moments of AdamW
RAPL = Path("/sys/class/powercap")
SECONDS = 0.5  # of calls at least
NOT_REPORTED = "not reported by this device"

Counter = Callable[[], float]  # joules so far


def peak(run: Run, device: torch.device) -> int | None:
    """The most bytes that a GPU held during one call, including weights; None on a CPU."""
    if device.type != "cuda":
        return None
    run.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    run.all()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def counted(module: nn.Module, run: Run) -> int:
    """The most bytes of weights and of results of operations at once, on a CPU. `run` must not have run before."""
    from searchspace.testing import peak_bytes

    def first() -> None:
        run.prepare()
        run.all()

    weights = sum(each.nbytes for each in (*module.parameters(), *module.buffers()))
    return weights + peak_bytes(first)


def declared(model: Configured, setting: Setting) -> int | None:
    """The bytes that costs declare: of weights, and of the state or the activations; None if they declare nothing.

    In training there are gradients and the moments of AdamW too. The forward pass alone declares nothing but weights.
    """
    cost = model.cost(Shape(batch=setting.batch, length=setting.length))
    if setting.phase == "train":
        return KEPT_IN_TRAINING * FLOAT * cost.parameters + cost.activation_bytes
    if setting.phase == "prefill":
        return None
    return FLOAT * cost.parameters + cost.state_bytes


def counter(device: torch.device) -> Counter | None:
    """The energy counter of a device; None if it has none that this process may read."""
    return _of_gpu(device) if device.type == "cuda" else _of_packages()


def joules(run: Run, device: torch.device, seconds: float = SECONDS) -> float | None:
    """The mean energy of one call, without its preparation; None if the device reports none."""
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
    """Why there may be no energy counter, and what helps, as a sentence."""
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
