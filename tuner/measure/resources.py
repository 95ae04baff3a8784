"""What compiled Triton kernels use of a GPU, as Triton reports it of a kernel that was launched.

A call may launch several kernels, for example forward and backward. Of each resource the largest use counts, because it
limits how many programs run at once. On a CPU and in Triton's interpreter nothing is compiled, so nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# registers: of a thread. spills: values of 32 bits that a thread keeps in memory, for lack of registers. shared: bytes
# of shared memory of a program. warps: of a program.
NAMES = ("registers", "spills", "shared", "warps")
Resources = Mapping[str, int]


def of(kernels: Iterable[Any]) -> Resources | None:
    """The most that one of these compiled kernels uses, by name; None if nothing is known."""
    found: dict[str, int] = {}
    for each in kernels:
        for name, value in _read(each).items():
            found[name] = max(value, found.get(name, 0))
    return found or None


def _read(kernel: Any) -> dict[str, int]:
    """What Triton says of one kernel. It knows registers and spills only after it has loaded the kernel on a device."""
    metadata = getattr(kernel, "metadata", None)
    said = (
        *(getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)),
        *(getattr(metadata, "shared", None), getattr(metadata, "num_warps", None)),
    )
    return {name: value for name, value in zip(NAMES, said, strict=True) if type(value) is int and value >= 0}


@contextmanager
def launched(is_triton: bool = True) -> Iterator[list[Any]]:
    """Inside the block, the list gets what Triton returns for each launch: the compiled kernel. Nothing without
    `is_triton`, so that Triton is not imported then."""
    if not is_triton:
        yield []
        return
    from triton.runtime.jit import JITFunction

    original, kernels = JITFunction.run, list[Any]()

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernels.append(original(self, *args, **kwargs))
        return kernels[-1]

    JITFunction.run = run
    try:
        yield kernels
    finally:
        JITFunction.run = original
