"""How the next symbol is drawn from logits: temperature, the k most likely symbols, the smallest set with mass p.

Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", https://arxiv.org/abs/1904.09751, section 3.1,
for top-p. B sequences, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """temperature: 0 takes the most likely symbol. top_k: 0 keeps all symbols. top_p: 1 keeps all symbols.

    Raises ValueError for a temperature or top_k below 0, or a top_p outside (0, 1].
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be a number of at least 0, but got {self.temperature}.")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0, but got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, but got {self.top_p}.")

    def next(self, logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """logits: [B, V] -> the next symbols, [B] of int64."""
        if self.temperature == 0:
            return logits.argmax(-1)
        return torch.multinomial(self.probabilities(logits), 1, generator=generator)[:, 0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """logits: [B, V] -> the probabilities that symbols are drawn with, [B, V]. The temperature is above 0."""
        scaled = logits.double()
        scaled = (scaled - scaled.amax(-1, keepdim=True)) / self.temperature  # at most 0, so nothing overflows
        if self.top_k:
            order = scaled.sort(dim=-1, descending=True, stable=True).indices  # of equals the first stay
            scaled = scaled.scatter(1, order[:, self.top_k :], -torch.inf)
        found = scaled.softmax(-1)
        if self.top_p < 1:
            ordered, places = found.sort(dim=-1, descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered  # the mass of the more likely symbols
            left_out = torch.zeros_like(found, dtype=torch.bool).scatter(1, places, before >= self.top_p)
            found = found.masked_fill(left_out, 0)
            found = found / found.sum(-1, keepdim=True)
        return found
