"""Adafactor: Adam that stores the second moment of a matrix as a row and a column, so it needs little memory.

N. Shazeer and M. Stern 2018, https://arxiv.org/abs/1804.04235, algorithm 5.
"""

from __future__ import annotations

import torch
from torch import nn

from nas.training.optimisers.adamw import Decay, Rate
from nas.training.optimisers.registry import decaying, optimiser


@optimiser("adafactor")
def adafactor(
    model: nn.Module, *, learning_rate: Rate = 1e-2, weight_decay: Decay = 0.0, clip_update: Rate = 1.0
) -> torch.optim.Optimizer:
    """Steps are relative to the size of the weights. clip_update: the largest root mean square of an update."""
    return torch.optim.Adafactor(decaying(model, weight_decay), lr=learning_rate, d=clip_update)
