"""The kernel of docs/tuning.md, and how `tests/kept/make.py` and the tests call it."""

import torch
import triton
from triton import language as tl

import tuner


@triton.jit
def scale_kernel(x_ptr, y_ptr, size, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=inside) * factor, mask=inside)


def tuned(store, **options):
    """The kernel, with what is known of it in `store`."""
    space = {"BLOCK": [16, 256, 64], "num_warps": [4, 2]}
    return tuner.tune(space=space, key=["size"], store=store, seed=1, **options)(scale_kernel)


def arguments():
    x = torch.arange(300.0)
    return x, torch.empty_like(x), x.numel(), 3.0


def launch(kernel):
    """What the kernel writes."""
    x, y, size, factor = arguments()
    kernel[lambda meta: (triton.cdiv(meta["size"], meta["BLOCK"]),)](x, y, size, factor)
    return y
