"""How to train: the `recipe` of a search file, the optimiser and the learning rate it describes.

I. Loshchilov and F. Hutter: AdamW, 2019, https://arxiv.org/abs/1711.05101, and the cosine, 2017,
https://arxiv.org/abs/1608.03983.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from nas.errors import UsageError
from searchspace.errors import nearest

PRECISIONS = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """warmup: steps from 1 on, below 1 the fraction of all steps. floor: the part of the learning rate left at the end.
    clip: the largest norm of the gradient, 0 for no limit. precision: auto is bfloat16 on a GPU that has it, float16 on
    one that has not, and float32 on a CPU."""

    learning_rate: float = 3e-3
    warmup: float = 0.1
    floor: float = 0.1
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    precision: str = "auto"

    def __post_init__(self) -> None:
        _number("learning_rate", self.learning_rate, above=0)
        _number("warmup", self.warmup)
        _number("floor", self.floor, high=1)
        _number("weight_decay", self.weight_decay)
        _number("clip", self.clip)
        if self.warmup >= 1 and self.warmup != int(self.warmup):
            raise ValueError(f"warmup must be a fraction below 1 or a whole number of steps, but got {self.warmup!r}.")
        if not isinstance(self.betas, list | tuple) or len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers from 0 to below 1, but got {self.betas!r}.")
        for beta in self.betas:
            _number("betas", beta, below=1)
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}, but got {self.precision!r}."
                f"{nearest(self.precision, PRECISIONS)}"
            )

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Recipe:
        """The recipe of a search file; raises UsageError with the nearest valid name."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise UsageError(f"recipe: there is no {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
        try:
            return cls(**options)
        except ValueError as error:
            raise UsageError(f"recipe: {error}") from error

    def rate(self, step: int, horizon: int) -> float:
        """The learning rate of `step`, counted from 0: up in a line, then down along a cosine until `horizon`."""
        warmup = self.warmup if self.warmup >= 1 else int(self.warmup * horizon)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        way = min(1.0, (step - warmup + 1) / max(1.0, horizon - warmup))
        return self.learning_rate * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * way)))

    def optimiser(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW that decays matrices alone: no norms, biases or embeddings."""
        embeddings = {
            parameter
            for module in model.modules()
            if isinstance(module, nn.Embedding)
            for parameter in module.parameters(recurse=False)
        }
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for parameter in model.parameters():
            if parameter.requires_grad:
                groups[parameter.ndim >= 2 and parameter not in embeddings].append(parameter)
        return torch.optim.AdamW(
            [
                {"params": groups[True], "weight_decay": self.weight_decay},
                {"params": groups[False], "weight_decay": 0.0},
            ],
            lr=self.learning_rate,
            betas=(self.betas[0], self.betas[1]),
            fused=True,  # 0.21 ms a step against 0.65 ms with foreach (247,200 parameters, float32, one CPU thread)
        )

    def dtype(self, device: torch.device) -> torch.dtype:
        """What matrix products are computed in on `device`."""
        if self.precision != "auto":
            return getattr(torch, self.precision)
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def _number(
    name: str, value: Any, *, above: float | None = None, below: float = math.inf, high: float = math.inf
) -> None:
    """Raise ValueError unless `value` is a finite number from 0 (or above `above`) to `high`, and below `below`."""
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if right and (value > above if above is not None else value >= 0) and value < below and value <= high:
        return
    low = f"above {above:g}" if above is not None else "of at least 0"
    top = f" and below {below:g}" if below < math.inf else f" and at most {high:g}" if high < math.inf else ""
    raise ValueError(f"{name} must be a number {low}{top}, but got {value!r}.")
