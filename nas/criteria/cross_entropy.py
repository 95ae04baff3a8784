"""Cross-entropy between logits and classes.

Label smoothing: Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision",
https://arxiv.org/abs/1512.00567, section 7.
N examples, V classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch.nn.functional as F
from torch import Tensor

from nas.criteria.registry import TargetKind, criterion
from nas.options import Field, Fraction


@criterion("cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """label_smoothing: the share of the target that is spread evenly over all classes."""

    target_kind: ClassVar[TargetKind] = "classes"

    label_smoothing: Annotated[Fraction, Field(lt=1)] = 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """outputs: logits [N, V], targets: classes [N] -> the mean in nats, a scalar, computed in float32."""
        return F.cross_entropy(outputs.float(), targets, label_smoothing=self.label_smoothing)
