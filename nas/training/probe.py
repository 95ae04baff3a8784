"""A probe: score an untrained model with the objectives that need one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from nas.objectives import registry
from nas.objectives.contract import ProbeObjective
from nas.tasks.contract import Task
from nas.training.determinism import set_seed
from nas.training.loop import Deadline, WrongReturn, place
from searchspace.cost import Shape
from searchspace.model.architecture import Architecture


def scores(
    specs: Sequence[Any],
    architecture: Architecture,
    model: nn.Module,
    task: Task,
    seed: int,
    device: torch.device,
    deadline: Deadline,
) -> tuple[dict[str, float], dict[str, Any]]:
    """The values of the objectives `specs` that need a probe, and the evidence of measured ones, both by name.

    specs: as in the search file. Some objectives measure the architecture. The others score the same model on the first
    training batch; each starts without gradients and with the same seed. Raises WrongReturn if the task breaks its
    contract, TooSlow past the deadline, and what an objective raises.
    """
    made = [registry.make(each, Shape(batch=1, length=task.shape.length)) for each in specs]
    try:
        batch = place(next(task.batches("train", seed)), device)
    except StopIteration:
        raise WrongReturn("batches must not end, but it ended before the first batch.") from None
    model.train()
    found: dict[str, float] = {}
    evidence: dict[str, Any] = {}
    for objective in made:
        if isinstance(objective, ProbeObjective):
            set_seed(seed, device)
            model.zero_grad(set_to_none=True)
            found[objective.name] = float(objective.score(model, batch, task))
            deadline.check(f"while scoring {objective.name}")
        found |= objective.on_worker(architecture)
        if objective.stage == "probe" and (told := objective.evidence(architecture)) is not None:
            evidence[objective.name] = told
    return found, evidence
