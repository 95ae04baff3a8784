"""Residual outputs start small, so that the sum of many of them has the scale of one.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3: the weights of residual outputs
are divided by sqrt(N), where N is the number of consecutive residual sums. Only pre-norm sums grow; a post-norm sum is
normalised.
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
    """The part of `module` whose output is added to its unnormalised input: of a pre-norm residual or a reversible
    pair.
    """
    return module.of if isinstance(module, Branch) or (isinstance(module, Residual) and module.pre) else None


def residual_calls(module: nn.Module) -> int:
    """How many pre-norm sums one pass through `module` computes; shared steps count each time."""
    calls = sum(residual_calls(child) for child in module.children())
    if isinstance(module, Repeat):
        calls *= module.times // len(module.of)
    elif isinstance(module, Halting):
        calls *= module.config.times
    return calls + int(_added(module) is not None)


def last_projections(module: nn.Module) -> Iterator[nn.Linear]:
    """The linear maps at the end of `module`: by convention, a block calls its last one `output`."""
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
