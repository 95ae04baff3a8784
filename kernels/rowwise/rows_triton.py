"""Shared by Triton kernels on rows."""

from __future__ import annotations

import torch
import triton.language as tl


def wide(dtype: torch.dtype) -> tl.dtype:
    """The dtype to compute in: float64 for float64, else float32."""
    return tl.float64 if dtype == torch.float64 else tl.float32
