"""Shared by Triton kernels on rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def wide(dtype: torch.dtype) -> tl.dtype:
    """The dtype to compute in: float64 for float64, else float32."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def in_steps(step: int, C: int) -> bool:
    """Whether a program goes over C columns in steps; a step of 0 is the whole row."""
    return 0 < step < C


def warps_of_whole_rows(step: int, C: int, num_warps: int) -> int:
    """Warps of a backward pass that holds a whole row: more than `num_warps` if those are meant for a step of it."""
    return max(num_warps, min(32, triton.next_power_of_2(C) // 512)) if in_steps(step, C) else num_warps
