"""Stochastic gradient descent with momentum.

I. Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", ICML.
"""

from __future__ import annotations

import torch
from torch import nn

from nas.training.optimisers.adamw import Decay, Momentum, Rate
from nas.training.optimisers.registry import decaying, optimiser


@optimiser("sgd")
def sgd(
    model: nn.Module,
    *,
    learning_rate: Rate = 0.1,
    momentum: Momentum = 0.9,
    nesterov: bool = False,
    weight_decay: Decay = 1e-4,
) -> torch.optim.Optimizer:
    """Only matrices decay. Raises ValueError for nesterov without momentum."""
    if nesterov and not momentum:
        raise ValueError("nesterov needs a momentum above 0.")
    return torch.optim.SGD(decaying(model, weight_decay), lr=learning_rate, momentum=momentum, nesterov=nesterov)
