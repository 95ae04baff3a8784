"""Muon: the momentum of each matrix is made orthogonal before the step; AdamW trains everything else.

K. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the rates are matched to AdamW's as in J. Liu et al.
2025, "Muon is Scalable for LLM Training", https://arxiv.org/abs/2502.16982, section 2.2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from nas.training.compiler import step_directly
from nas.training.optimisers.adamw import Decay, Momentum, Rate
from nas.training.optimisers.registry import optimiser, split


@optimiser("muon")
def muon(
    model: nn.Module,
    *,
    learning_rate: Rate = 3e-3,
    momentum: Momentum = 0.95,
    weight_decay: Decay = 0.1,
    betas: tuple[Momentum, Momentum] = (0.9, 0.95),
) -> torch.optim.Optimizer:
    """momentum: of the matrices. betas: of AdamW, for embeddings, norms, biases and kernels of convolutions."""
    decayed, others = split(model)
    matrices = [parameter for parameter in decayed if parameter.ndim == 2]
    kernels = [parameter for parameter in decayed if parameter.ndim > 2]
    groups = [{"params": kernels, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=learning_rate, betas=(betas[0], betas[1]), fused=True)
    if not matrices:
        return adamw
    # match_rms_adamw scales an update to the size that AdamW's has, so one learning rate serves both.
    orthogonal = torch.optim.Muon(
        matrices, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
    )
    return Together(step_directly(orthogonal), step_directly(adamw))


class Together(torch.optim.Optimizer):
    """Several optimisers, each with its own parameters, that make their steps together."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let `param_groups` be the groups of the parts, so that a new learning rate reaches them."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step of each part."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of the parts, in their order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the states of the parts. Raises KeyError or ValueError for the state of other optimisers."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share()
