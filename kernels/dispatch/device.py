"""The fingerprint of a device, which is stored with every measurement.

Two machines with equal fingerprints are expected to agree on which configuration is fastest. What differs between runs
on one machine (free memory, clocks, load) is not part of it. The processor's name and instruction set come from
/proc/cpuinfo, because psutil does not have them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device and the software that drives it."""

    kind: str  # "cpu" or "cuda"
    name: str  # the name that its maker gives it
    capability: str  # CUDA's compute capability ("9.0"); on a CPU torch's vector instructions ("AVX2")
    units: int  # streaming multiprocessors; on a CPU logical cores
    memory_bytes: int  # of the device; for a CPU the memory of the machine
    features: str = ""  # hash of a CPU's instruction set flags
    driver: str = ""  # version of the GPU driver
    torch: str = ""
    triton: str = ""  # empty if not installed

    @property
    def key(self) -> str:
        """A short hash, the same after every restart. Memory is left out: firmware takes varying amounts of it."""
        text = json.dumps(asdict(replace(self, memory_bytes=0)), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """Every field, and the key."""
        return {"key": self.key, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.name} ({self.units} {'cores' if self.kind == 'cpu' else 'SMs'}, {self.capability})"


def resolve(device: str) -> torch.device:
    """`device` ("cpu", "cuda", "cuda:1") as a torch.device.

    Raises ValueError for another kind and for a device that this machine does not have.
    """
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', but got {device!r}.")
    if found.type == "cpu":
        return torch.device("cpu")
    if (found.index or 0) >= (count := torch.cuda.device_count()):
        raise ValueError(f"device {device!r} is not available: torch {torch.__version__} sees {count} CUDA device(s).")
    return torch.device("cuda", found.index or 0)


def fingerprint(device: str = "cpu") -> Device:
    """The fingerprint of `device`: "cpu", "cuda" or "cuda:N". Raises ValueError if this machine does not have it."""
    found = resolve(device)
    return _cpu() if found.type == "cpu" else _cuda(found.index)


@cache
def _cpu() -> Device:
    name, flags = _processor()
    return Device(
        kind="cpu",
        name=name,
        capability=torch.backends.cpu.get_cpu_capability(),
        units=os.cpu_count() or 1,
        memory_bytes=_machine_memory(),
        features=hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest()[:12] if flags else "",
        torch=torch.__version__,
        triton=_triton(),
    )


@cache
def _cuda(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    return Device(
        kind="cuda",
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        units=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        driver=_driver(),
        torch=torch.__version__,
        triton=_triton(),
    )


def _triton() -> str:
    # The distribution may have another name (pytorch-triton-rocm), so the module's own version is the fallback.
    if importlib.util.find_spec("triton") is None:
        return ""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return getattr(importlib.import_module("triton"), "__version__", "unknown")


def _processor() -> tuple[str, list[str]]:
    """The processor's name and its instruction set flags, which are empty if the system does not report them."""
    description = Path("/proc/cpuinfo")
    if description.exists():
        return parse_cpuinfo(description.read_text(errors="replace"))
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine(), []
    return platform.processor() or platform.machine(), []


def parse_cpuinfo(text: str) -> tuple[str, list[str]]:
    """The name and flags of the first processor in the text of Linux's /proc/cpuinfo.

    On Arm there is no model name; the numbers of the maker and the part then form the name.
    """
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    numbers = [fields[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in fields]
    name = fields.get("model name") or " ".join([platform.machine(), *numbers])
    return name, (fields.get("flags") or fields.get("Features") or "").split()


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # this system does not report it
        return 0


def _driver() -> str:
    """The driver's version; without nvidia-smi on the PATH the CUDA version that the driver supports."""
    if version := _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"):
        return version.splitlines()[0].strip()
    number = getattr(torch._C, "_cuda_getDriverVersion", int)()
    return f"CUDA {number // 1000}.{number % 1000 // 10}" if number else ""


def _output(*command: str) -> str:
    """What `command` prints; empty if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
