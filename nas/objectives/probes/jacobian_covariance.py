"""How differently an untrained network reacts to different examples: the correlation of their Jacobians.

Mellor et al. 2020, "Neural Architecture Search without Training", https://arxiv.org/abs/2006.04647v1, first version;
`jacob_cov` of Abdelfattah et al. 2021, https://arxiv.org/abs/2101.08134. With the eigenvalues v of the correlation
matrix of the Jacobians, the score is -sum(log(v + k) + 1 / (v + k)), k = 1e-5.

The Jacobian is that of the sum of the outputs. Tokens have no gradient, so it is taken at the output of the first
layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas.objectives.probes._passes import Probe, check_examples, loss_of, watched
from nas.objectives.registry import objective
from nas.tasks.contract import Batch, Task

K = 1e-5


@objective("jacobian_covariance")
class JacobianCovariance(Probe):
    """Larger if the Jacobians of the examples of a batch are less alike. The batch needs two examples."""

    def check(self, task: Task) -> None:
        """Raise ValueError if a batch of the task has a single example."""
        check_examples(self.name, task)

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        with watched(model) as seen:
            loss_of(model, batch, task)
        entered, output = seen.of_model()
        (jacobian,) = torch.autograd.grad(output.sum(), entered)
        return of_jacobians(jacobian.flatten(1))


def of_jacobians(jacobians: Tensor) -> float:
    """The score of Jacobians [examples, inputs]. Raises ValueError for fewer than two examples, and if one does
    not vary over the inputs."""
    if len(jacobians) < 2:
        raise ValueError("the Jacobians of a single example have no correlation; the batch needs two.")
    correlations = torch.corrcoef(jacobians.double())
    if not correlations.isfinite().all():
        raise ValueError("the Jacobian of an example does not vary over its inputs: gradients vanish or overflow.")
    values = torch.linalg.eigvalsh(correlations)
    return -(torch.log(values.clamp(min=0) + K) + 1 / (values.clamp(min=0) + K)).sum().item()
