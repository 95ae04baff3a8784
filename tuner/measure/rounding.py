"""How far rounding may move a result, on any processor: the same computation with random errors in every step.

This is Monte Carlo arithmetic (Parker 1997, "Monte Carlo arithmetic: exploiting randomness in floating-point
arithmetic"): each operand and each result of each operator is multiplied by 1 + NOISE * u, with u uniform in [-1, 1].
So the error of a sum follows from the sizes of its terms, also if the terms cancel. The error of the definition itself
in the dtype of the problem is one sample only, which may be small by luck, and is another one on another processor.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NOISE = 2.0**-30  # small, so that errors are proportional to it, and far above the precision of float64
# Operators that move, select or compare numbers: they are exact, and noise would change what they select.
EXACT = {
    *(
        "_local_scalar_dense",
        "_to_copy",
        "abs",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "bucketize",
        "cat",
        "ceil",
        "clamp",
    ),
    *("clone", "copy", "cummax", "cummin", "eq", "floor", "gather", "ge", "gt", "index", "index_put", "index_select"),
    *("le", "lt", "masked_fill", "masked_select", "max", "maximum", "min", "minimum", "ne", "neg", "nan_to_num"),
    *("new_zeros", "nonzero", "relu", "repeat", "roll", "round", "scalar_tensor", "scatter", "searchsorted"),
    *("select_backward", "sign", "slice_backward", "sort", "stack", "topk", "trunc", "where", "zeros_like"),
}


@cache
def _rounds(operator: Any) -> bool:
    """Whether an operator rounds. Views share memory with their operand, and operators in place write to it."""
    schema = operator._schema
    shares = any(each.alias_info is not None for each in (*schema.arguments, *schema.returns))
    return not shares and schema.name.rpartition(":")[2] not in EXACT


class Rounding(TorchDispatchMode):
    """Inside the block each arithmetic operator in float64 has random relative errors of up to NOISE.

    operands: whether numbers are also rounded before they are used. If not, only results are, as in a computation that
    stores numbers in 16 bits and adds them in 32.
    """

    def __init__(self, device: torch.device, seed: int, *, operands: bool) -> None:
        super().__init__()
        self.generator = torch.Generator(device).manual_seed(seed)
        self.operands = operands

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rounds = _rounds(operator)
        if rounds and self.operands:
            args = [self._rounded(each) for each in args]
        found = operator(*args, **(kwargs or {}))
        if not rounds:
            return found
        return tuple(map(self._rounded, found)) if isinstance(found, tuple) else self._rounded(found)

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype != torch.float64 or value.device != self.generator.device:
            return value
        noise = torch.empty(value.shape, dtype=value.dtype, device=value.device)
        return noise.uniform_(1 - NOISE, 1 + NOISE, generator=self.generator).mul_(value)
