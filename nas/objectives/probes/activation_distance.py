"""How differently the linear regions are in which an untrained network puts different examples.

Mellor et al. 2021, "Neural Architecture Search without Training", https://arxiv.org/abs/2006.04647. The code of an
example says which activations are positive. K[i, j] counts the places where the codes of examples i and j agree; the
score is log |det K|.

The paper looks at the inputs of ReLU. Models here have other activations as well, so the outputs of all linear layers
are used, the same for every architecture. If there is none, as in a model of LSTMs alone, the output of the model is.
Examples with the same code make K singular, and equal examples always have the same code. So an eigenvalue below 1
counts as 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nas.objectives.probes._passes import Probe, loss_of, watched
from nas.objectives.registry import objective
from nas.tasks.contract import Batch, Task


@objective("activation_distance")
class ActivationDistance(Probe):
    """log |det K| of the codes of a batch."""

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        with torch.no_grad(), watched(model) as seen:
            loss_of(model, batch, task)
        entered, output = seen.of_model()
        return of_activations([each for each in seen.linear if len(each) == len(entered)] or [output])


def of_activations(layers: Sequence[Tensor]) -> float:
    """The score of the outputs [examples, ...] of one layer or more; NaN if one of them is not finite."""
    if not all(each.isfinite().all() for each in layers):
        return math.nan  # NaN is not positive, so it would count as an activation that is off
    agreements = torch.zeros(len(layers[0]), len(layers[0]), dtype=torch.float64)
    for each in layers:
        codes = (each.flatten(1) > 0).double().cpu()
        agreements += codes @ codes.T + (1 - codes) @ (1 - codes).T
    return torch.linalg.eigvalsh(agreements).clamp(min=1).log().sum().item()
