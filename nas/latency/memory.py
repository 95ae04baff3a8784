"""The memory that a phase needs: measured, and as the costs of an architecture declare it.

On a GPU the allocator counts. On a CPU the results of all operations are counted while they are alive, and the weights
are added: buffers inside one operation are not seen.
"""

from __future__ import annotations

import torch
from torch import nn

from nas.latency.runs import Run, Setting
from searchspace.cost import Shape
from searchspace.registry import Configured

FLOAT = 4  # bytes
KEPT_IN_TRAINING = 4  # weights, gradients, and the two moments of AdamW


def peak(run: Run, device: torch.device) -> int | None:
    """The most bytes that a GPU held during one call, including weights; None on a CPU."""
    if device.type != "cuda":
        return None
    run.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    run.all()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)


def counted(module: nn.Module, run: Run) -> int:
    """The most bytes of weights and of results of operations at once, on a CPU. `run` must not have run before."""
    from searchspace.testing import peak_bytes

    def first() -> None:
        run.prepare()
        run.all()

    weights = sum(each.nbytes for each in (*module.parameters(), *module.buffers()))
    return weights + peak_bytes(first)


def declared(model: Configured, setting: Setting) -> int | None:
    """The bytes that costs declare: of weights, and of the state or the activations; None if they declare nothing.

    In training there are gradients and the moments of AdamW too. The forward pass alone declares nothing but weights.
    """
    cost = model.cost(Shape(batch=setting.batch, length=setting.length))
    if setting.phase == "train":
        return KEPT_IN_TRAINING * FLOAT * cost.parameters + cost.activation_bytes
    if setting.phase == "prefill":
        return None
    return FLOAT * cost.parameters + cost.state_bytes
