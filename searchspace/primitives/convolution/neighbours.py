"""Helpers of convolutions over time: pad a piece with its neighbours, and the cost of the state that streaming keeps.

B batch, T time, K taps (`kernel`), C channels. A causal position reads the K - 1 positions before it. Otherwise K // 2
of the K - 1 neighbours are before it. The input is zero beyond the ends and at padding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from searchspace.contract import Context, Primitive
from searchspace.cost import Cost, Shape

TAIL = {"tail": "B W C"}  # the axes of the state of a block that calls `with_neighbours`


def with_neighbours(block: Primitive, x: Tensor, kernel: int, context: Context, *, causal: bool) -> Tensor:
    """x: [B, T, C] -> [B, T + K - 1, C], with zeros at the ends; in streaming, the previous inputs are in front.

    Padding is set to zero. It takes the next slot of `block` in the stream.

    Raises ValueError if the context is streaming and the block is not `causal`.
    """
    slot = context.slot(block, causal=causal)
    if context.padding is not None:
        x = x.masked_fill(~context.padding[:, :, None], 0)
    left = before(kernel, causal=causal)
    padded = torch.cat([slot["tail"], x], dim=1) if slot else F.pad(x, (0, 0, left, kernel - 1 - left))
    if slot is not None:
        # A copy, because a slice would keep the whole piece in memory.
        slot["tail"] = padded.narrow(1, padded.shape[1] - left, left).clone()
    return padded


def before(kernel: int, *, causal: bool) -> int:
    """How many of the K - 1 neighbours are before a position."""
    return kernel - 1 if causal else kernel // 2


def tail_cost(kernel: int, dim: int, shape: Shape, *, causal: bool) -> Cost:
    """The state that streaming keeps: the last K - 1 inputs."""
    return Cost(state_bytes=shape.batch * (kernel - 1) * dim * shape.element_bytes if causal else 0)
