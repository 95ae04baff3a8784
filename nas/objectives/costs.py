"""Objectives that are computed from the blocks of an architecture, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from nas.objectives.contract import CostObjective, Objective, cost_of
from nas.objectives.registry import objective
from searchspace.cost import Cost
from searchspace.model.architecture import Architecture
from searchspace.parts import total

TABLES = {"embedding", "source", "segments", "position", "logits"}  # parts of a model


@objective("parameters")
class Parameters(CostObjective):
    """The number of trainable parameters. Shared parameters and tied embeddings count once."""

    def read(self, cost: Cost) -> float:
        return cost.parameters


@objective("non_embedding_parameters")
class NonEmbeddingParameters(Objective):
    """Parameters of everything but tables of tokens, segments and positions, and an untied output layer.

    Kaplan et al. 2020, "Scaling Laws for Neural Language Models", https://arxiv.org/abs/2001.08361, section 2.1: they
    predict the loss better than all parameters do.
    """

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The number; `metrics` do not matter."""
        model = architecture.configured
        parts = model.type.module.parts(model.config, self.shape)
        tables = total(part.cost() for part in parts if part.name in TABLES)
        return float(cost_of(architecture, self.shape).parameters - tables.parameters)


@objective("flops")
class Flops(CostObjective):
    """FLOPs of one forward pass. Halting blocks count at the measured depth, before training at the untrained depth."""

    def read(self, cost: Cost) -> float:
        return cost.expected_flops


@objective("training_flops")
class TrainingFlops(CostObjective):
    """FLOPs of a forward and backward pass. A multiply-add counts as two; every step of a halting block counts."""

    def read(self, cost: Cost) -> float:
        return cost.training_flops


@objective("state_bytes")
class StateBytes(CostObjective):
    """The memory that generation keeps between two positions, after `length` of them were read.

    Keys and values of attention, states of recurrences, the last inputs of convolutions.
    """

    def read(self, cost: Cost) -> float:
        return cost.state_bytes


@objective("activation_bytes")
class ActivationBytes(CostObjective):
    """The memory that a forward pass keeps for the backward pass: most of the memory of training.

    Computed from the blocks. The scratch memory of the framework is not included.
    """

    def read(self, cost: Cost) -> float:
        return cost.activation_bytes
