"""Residual outputs that start small, so that the sum of many stays at the scale of one.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3: the weights of residual outputs
are divided by sqrt(N), N the number of residual sums in a row. Only pre-norm sums grow; a post-norm sum is normalised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn

from searchspace.combinators.halting import Halting
from searchspace.combinators.parallel import Parallel
from searchspace.combinators.repeat import Repeat
from searchspace.combinators.residual import Residual
from searchspace.combinators.reversible import Branch
from searchspace.combinators.sequence import Sequence, Stack


@torch.no_grad()
def scale_residual_outputs(body: Stack) -> None:
    """Divide the last projection of every pre-norm residual in `body` by the square root of their number of calls."""
    calls = residual_calls(body)
    for module in body.modules():
        if (added := _added(module)) is not None:
            for output in last_projections(added):
                output.weight.div_(math.sqrt(calls))


def _added(module: nn.Module) -> nn.Module | None:
    """What `module` adds to its unnormalised input, if it does: a pre-norm residual, or one of a reversible pair."""
    return module.of if isinstance(module, Branch) or (isinstance(module, Residual) and module.pre) else None


def residual_calls(module: nn.Module) -> int:
    """How many pre-norm sums one pass through `module` makes, shared steps counted each time."""
    calls = sum(residual_calls(child) for child in module.children())
    if isinstance(module, Repeat):
        calls *= module.times // len(module.of)
    elif isinstance(module, Halting):
        calls *= module.config.times
    return calls + int(_added(module) is not None)


def last_projections(module: nn.Module) -> Iterator[nn.Linear]:
    """The linear maps that end `module`: by convention a block calls its last one `output`."""
    if isinstance(module, Stack):
        if len(module):
            yield from last_projections(module[-1])
    elif isinstance(module, Sequence):
        yield from last_projections(module.of)
    elif isinstance(module, Parallel) and module.combine != "concatenate":
        for branch in module.of:
            yield from last_projections(branch)
    elif isinstance(output := getattr(module, "output", None), nn.Linear):
        yield output
