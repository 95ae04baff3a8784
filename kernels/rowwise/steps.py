"""The columns that a program of a Triton kernel holds at a time: a whole row, or a step of it.

A program that holds a whole row reads it once. But the registers of a wide row fill a multiprocessor, so the next row
is not loaded while it computes. A program that goes over one row in steps reads it twice, the second time from the
level-2 cache, and the row may be of any width. On an H100, of the copy bandwidth, forward in bfloat16: softmax of
16,384 columns .99 whole and .88 in steps, of 32,768 columns .75 and .87; the norms are faster whole at both widths.
"""

from __future__ import annotations

from typing import Any

from kernels.dispatch.registry import Configuration, Problem
from kernels.rowwise import rows as by_rows

TILES = {**by_rows.TILES, "step": (0, 8192, 4096, 2048, 1024)}  # columns; 0: the whole row
NARROWEST = 4096  # columns from which steps are tried: narrower rows fit the registers of a few warps
FEWEST_WARPS = 4  # of a program that goes in steps: a multiprocessor holds 16 such programs and is full
FEWEST, MOST = 8, 32  # numbers of a step that a thread holds: 16 bytes of bfloat16 at least


def fits(configuration: Configuration, problem: Problem) -> bool:
    """Whether whole rows suit the threads of a program; or whether a step does, of one row that is wide enough."""
    step, warps, columns = int(configuration["step"]), int(configuration["num_warps"]), problem["columns"]
    if not step:
        return by_rows.fits(configuration, problem)
    numbers = step // (by_rows.WARP * warps)
    wide = columns >= NARROWEST and columns > step
    return wide and configuration["rows"] == 1 and warps >= FEWEST_WARPS and FEWEST <= numbers <= MOST


def suited(problem: Problem) -> dict[str, Any]:
    """For norms: whole rows if a program can hold them; of wider rows, steps with 8 numbers per thread."""
    columns = problem["columns"]
    if columns > by_rows.WIDEST:
        return {"rows": 1, "num_warps": 32, "step": 8192}
    whole = {**by_rows.suited(problem), "step": 0}
    if by_rows.power(columns) == 16_384 and not problem["gradients"]:
        whole["num_warps"] = 16  # on an H100 .96 of the copy bandwidth for layer_norm, with 32 warps .72
    return whole


def suited_to_softmax(problem: Problem) -> dict[str, Any]:
    """Whole rows up to 16,384 columns; of wider rows, the steps that are fastest on an H100."""
    if problem["columns"] <= 16_384:
        return {**by_rows.suited(problem), "step": 0}
    return {"rows": 1, "num_warps": 16, "step": 4096}


def needs_gpu_and_a_backward_pass_that_fits(problem: Problem) -> str | None:
    """Why a kernel cannot run `problem` if its forward pass may go in steps, but its backward pass holds whole rows."""
    return by_rows.needs_gpu_and_narrow_rows(problem) if problem["gradients"] else by_rows.needs_gpu(problem)
