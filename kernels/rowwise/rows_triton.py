"""What Triton kernels on rows share."""

from __future__ import annotations

import torch
import triton.language as tl


def wide(dtype: torch.dtype) -> tl.dtype:
    """What is computed in: float32, or float64 for float64."""
    return tl.float64 if dtype == torch.float64 else tl.float32
