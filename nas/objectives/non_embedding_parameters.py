"""The number of trainable parameters without the tables of the vocabulary and of positions.

Kaplan et al. 2020, "Scaling Laws for Neural Language Models", https://arxiv.org/abs/2001.08361, section 2.1: they
predict the loss better than all parameters do.
"""

from __future__ import annotations

from collections.abc import Mapping

from nas.objectives.contract import Objective, cost_of
from nas.objectives.registry import objective
from searchspace.model.architecture import Architecture
from searchspace.parts import total

TABLES = {"embedding", "source", "segments", "position", "logits"}  # parts of a model


@objective("non_embedding_parameters")
class NonEmbeddingParameters(Objective):
    """Parameters of everything but tables of tokens, segments and positions, and an untied output layer."""

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The number; `metrics` do not matter."""
        model = architecture.configured
        parts = model.type.module.parts(model.config, self.shape)
        tables = total(part.cost() for part in parts if part.name in TABLES)
        return float(cost_of(architecture, self.shape).parameters - tables.parameters)
