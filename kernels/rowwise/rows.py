"""Shared by operations on rows: [N, C] views of any tensor, tiles of rows, and the tiles that fit a processor.

Each program of a Triton kernel holds `rows` whole rows in registers, so each number is read and written once; wide rows
may be read in steps (`kernels.rowwise.steps`). On a CPU, a block of rows goes through all steps of a formula while it
is in the cache. N rows, C columns.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernels.dispatch.registry import Configuration, Problem, registered

WIDEST = 65536  # columns that a program can hold: 64 numbers for each of 1,024 threads
PER_THREAD = 64  # numbers of a row block that a thread may hold; with more, registers spill
WARP = 32
CACHED = 2**16  # numbers of a block on a CPU: the cache of a core holds them and the intermediate results

TILES = {"rows": (1, 2, 4, 8, 16), "num_warps": (1, 2, 4, 8, 16, 32)}
BLOCKS = {"rows": (8, 16, 32, 64, 128, 256, 512, 1024)}  # on a CPU


def wide(x: Tensor) -> torch.dtype:
    """The dtype in which to compute with x of any shape: float64 for float64, else float32."""
    return torch.promote_types(x.dtype, torch.float32)


def flat(x: Tensor) -> Tensor:
    """x: [..., C] -> [N, C] with contiguous rows; a view if possible."""
    C = x.shape[-1]
    rows = x.reshape(x.numel() // max(C, 1), C)
    return rows if rows.stride(1) == 1 or C < 2 else rows.contiguous()


def count(x: Tensor) -> int:
    """The number of rows of x: [..., C]."""
    return x.numel() // max(x.shape[-1], 1)


def learns(*tensors: Tensor | None) -> bool:
    """Whether autograd will need a gradient of any of `tensors`."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


def parts(length: int, rows: int) -> Iterator[slice]:
    """Slices of at most `rows` that cover `length`."""
    return (slice(start, min(start + rows, length)) for start in range(0, length, rows))


def power(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()


@cache
def triton_is_here() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def needs_gpu(problem: Problem) -> str | None:
    """Why a Triton kernel cannot run `problem`, or None. On a CPU the interpreter runs kernels in tests only."""
    if problem.device != "cuda":
        return "a Triton kernel needs a GPU"
    return None if triton_is_here() else "Triton is not installed"


def needs_gpu_and_narrow_rows(problem: Problem) -> str | None:
    """The same for kernels that hold whole rows."""
    if problem["columns"] > WIDEST:
        return f"a program holds at most {WIDEST} columns"
    return needs_gpu(problem)


def fits(configuration: Configuration, problem: Problem) -> bool:
    """Whether the rows of a program give each thread a number, and fit its registers."""
    rows, threads = int(configuration["rows"]), WARP * int(configuration["num_warps"])
    numbers = rows * power(problem["columns"])
    return numbers <= PER_THREAD * threads and (numbers >= threads or configuration["num_warps"] == 1)


def suited(problem: Problem) -> dict[str, Any]:
    """Tiles of 1,024 numbers or of one row; 16 numbers per thread: 8 warps for 4,096 columns."""
    block = power(problem["columns"])
    rows = min(16, max(1, 1024 // block))
    return {"rows": rows, "num_warps": min(32, max(1, rows * block // (16 * WARP)))}


def in_cache(problem: Problem, values: Sequence[int], width: int, cached: int = CACHED) -> int:
    """The largest of `values` whose rows have at most `cached` numbers, else the smallest; width: numbers of a row.

    On a GPU the largest of all: a block is a few launches there, and 8,192 blocks of one row took 1.8 s on an H100.
    """
    if problem.device != "cpu":
        return max(values)
    return max((rows for rows in values if rows * width <= cached), default=min(values))


def cached(problem: Problem) -> dict[str, Any]:
    """Blocks that fit the cache of a CPU."""
    return {"rows": in_cache(problem, BLOCKS["rows"], problem["columns"])}


def own(problem: Problem) -> str:
    """The default before tuning: PyTorch's own implementation, which has been measured on all devices."""
    return "torch"


def shapes(name: str, **flags: Any) -> Callable[[str], dict[str, Problem]]:
    """Named problems [N, C]: rows of a language model on a CPU, widths of 4k to 32k on a GPU."""

    def problems(device: str) -> dict[str, Problem]:
        large, small = [(8192, 1024), (8192, 4096), (4096, 8192), (2048, 32768)], [(512, 64), (512, 256), (2048, 1024)]
        sizes = {f"{rows}x{columns}": (rows, columns) for rows, columns in (large if device == "cuda" else small)}
        return registered(name).named(device, sizes, **flags)

    return problems


def numbers(problem: Problem, seed: int, *shapes: tuple[int, ...], draw: Any = torch.randn) -> list[Tensor]:
    """Random tensors of these shapes in the dtype and on the device of a problem, with gradients if it needs them."""
    generator = torch.Generator(problem.device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)
    return [
        draw(shape, generator=generator, device=problem.device).to(dtype).requires_grad_(problem["gradients"])
        for shape in shapes
    ]
