"""Simulated GPUs behind the clock of real ones: frequency, launches, cache, memory, contexts that die."""

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import torch

from tuner.measure import measure as clocks
from tuner.measure.children import Children
from tuner.measure.measure import SPINS, CudaClock
from tuner.measure.worker import Worker


class Gpu:
    """A pretended GPU: the processor launches work, and the GPU does it in order, later. Times in milliseconds.

    ramp: of work until the frequency is high. cache, memory: bytes. After `die` every launch of the same context fails.
    """

    def __init__(self, name: str = "Simulated", ramp: float = 0.0, cache: int = 50 * 2**20, memory: int = 2**30):
        self.name, self.ramp, self.cache, self.memory = name, ramp, cache, memory
        self.host = self.free = 0.0  # the time of the processor; when the GPU has done everything launched so far
        self.worked = 0.0  # since it was idle for long
        self.buffers = []
        self.used = 0  # bytes, by all processes
        self.is_dead = False

    @property
    def properties(self):
        known = {"name": self.name, "L2_cache_size": self.cache, "total_memory": self.memory, "major": 9, "minor": 0}
        return SimpleNamespace(**known, multi_processor_count=100, shared_memory_per_block_optin=self.cache // 256)

    def allocate(self, size: int) -> None:
        """Raises OutOfMemoryError if there is no room for `size` bytes."""
        if self.used + size > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")

    def die(self) -> None:
        """Raises what a kernel raises that reads outside of its memory; the context stays broken."""
        self.is_dead = True
        self.launch(0.0)

    def launch(self, busy: float, host: float = 0.0) -> None:
        """The processor needs `host` to launch work of `busy`, which takes three times as long at a low frequency."""
        if self.is_dead:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.host += host
        if self.host - self.free > 100:
            self.worked = 0.0
        busy *= 3 if self.worked < self.ramp else 1
        self.worked += busy
        self.free = max(self.free, self.host) + busy

    def compile(self, monkeypatch, registers: int, spills: int, shared: int, warps: int) -> Callable[[float], None]:
        """A Triton kernel that uses these resources; a call launches work that takes this many milliseconds."""
        from triton.runtime.jit import JITFunction

        compiled = SimpleNamespace(n_regs=registers, n_spills=spills)
        compiled.metadata = SimpleNamespace(shared=shared, num_warps=warps)

        def run(kernel, busy):
            self.launch(busy)
            return kernel.compiled

        monkeypatch.setattr(JITFunction, "run", run)
        kernel = JITFunction.__new__(JITFunction)
        kernel.compiled = compiled
        return lambda busy: kernel.run(busy)

    def patch(self, monkeypatch) -> CudaClock:
        gpu = self

        class Event:
            def __init__(self, enable_timing):
                pass

            def record(self):
                self.at = max(gpu.free, gpu.host)

            def query(self):
                return gpu.host >= self.at

            def synchronize(self):
                gpu.host = max(gpu.host, self.at)

            def elapsed_time(self, end):
                return end.at - self.at

        class Buffer:
            def zero_(self):
                gpu.launch(0.08)

        def empty(size, **_):
            gpu.buffers.append(size)
            return Buffer()

        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu.properties)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "synchronize", lambda _: setattr(gpu, "host", max(gpu.host, gpu.free)))
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.launch(cycles / SPINS), raising=False)
        seconds = SimpleNamespace(
            perf_counter=lambda: gpu.host / 1e3,
            perf_counter_ns=lambda: gpu.host * 1e6,
            monotonic=lambda: gpu.host / 1e3,
        )
        monkeypatch.setattr(clocks, "time", seconds)
        with monkeypatch.context() as during:
            during.setattr(torch, "empty", empty)
            return CudaClock(torch.device("cuda"))


class OnGpu(Children):
    """Children that are simulated too: each works in this process, with a new context of the GPU."""

    gpu: Gpu
    clock: CudaClock

    def _ready(self):
        if self.child is None:
            self.gpu.is_dead = False
            self.started += 1
            self.child = _Child(self.settings, self.clock)
        return self.child


class _Child:
    """A child that does its work when it is sent."""

    def __init__(self, settings, clock):
        self.said = []
        self.worker = Worker(settings, self.said.append)
        self.worker.clock = clock

    def send(self, job):
        self.said.append(self.worker.measure(job))

    def receive(self, until):
        return self.said.pop(0)

    def kill(self):
        pass

    close = kill


def two(monkeypatch, *gpus):
    """This machine has these GPUs; returns a list to which the number of the current one is appended."""
    current = [0]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(torch.device(device).index))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpus[_index(device)].properties)
    return current


def _index(device):
    return device if isinstance(device, int) else torch.device(device).index or 0
