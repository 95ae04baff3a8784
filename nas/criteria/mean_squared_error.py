"""Mean squared error, for tasks whose targets are numbers."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from nas.criteria.registry import TargetKind, criterion


@criterion("mean_squared_error")
class MeanSquaredError:
    """It has no options."""

    target_kind: ClassVar[TargetKind] = "numbers"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """outputs: [...], targets: [...] of the same shape -> their mean squared difference, a scalar, in float32.

        Raises ValueError if the shapes differ, because broadcasting would average over wrong pairs.
        """
        if outputs.shape != targets.shape:
            raise ValueError(
                f"outputs and targets must have one shape, but got {list(outputs.shape)} and {list(targets.shape)}."
            )
        return F.mse_loss(outputs.float(), targets.float())
