"""How far a decoder gets in a few steps on synthetic tasks: recall, copy and compression.

Poli et al. 2024, "Mechanistic Design and Scaling of Hybrid Architectures" (MAD), https://arxiv.org/abs/2403.17844,
section 3, rank architectures by small models on such tasks. Here the sequences are short, and so is the race.

recall: pairs of a key and a value, then the keys again in another order; only values that were shown count. copy: a
random string, a separator, and the string again; only the second one counts. compression: every symbol is followed by
one of two that a fixed table names, so a bit a symbol is left of log2 V; all positions count. V symbols, B sequences, T
positions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.objectives.contract import Direction, ProbeObjective
from nas.objectives.registry import objective
from nas.options import Field, Number, Positive
from nas.tasks.contract import Batch, Task
from searchspace.contract import Context
from searchspace.cost import Shape

Drawn = tuple[Tensor, Tensor]  # symbols [B, T], and which of them count as targets [B, T]
MOST_SYMBOLS = 16  # that a race uses


@objective("short_race")
class ShortRace(ProbeObjective):
    """The mean loss of the three tasks after the race, in nats. steps: of each task. length: of a sequence, as far as
    the task's own is that long. batch: sequences of a step."""

    def __init__(
        self,
        shape: Shape,
        steps: Positive = 20,
        length: Annotated[Positive, Field(ge=8)] = 32,
        batch: Positive = 16,
        learning_rate: Annotated[Number, Field(gt=0)] = 3e-3,
    ) -> None:
        super().__init__(shape)
        self.steps, self.length, self.batch, self.learning_rate = steps, length, batch, learning_rate
        self.direction = Direction.MINIMISE

    def check(self, task: Task) -> None:
        """Raise ValueError if models of the task are no decoders of symbols, or have fewer than 6 of them."""
        _symbols(task)

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        """See `ProbeObjective.score`. The model keeps its weights: a copy runs. Raises ValueError as `check` does."""
        used = min(_symbols(task), MOST_SYMBOLS)
        length = min(self.length, self.shape.length)
        races = (recall, copying, compression)
        return sum(self._raced(model, each, used, length) for each in races) / len(races)

    def _raced(self, model: nn.Module, race: Callable[..., Drawn], symbols: int, length: int) -> float:
        """The loss on new sequences after the race."""
        runner = copy.deepcopy(model)
        device = next(runner.parameters()).device
        optimiser = torch.optim.AdamW(runner.parameters(), lr=self.learning_rate)
        for step in range(self.steps):
            generator = torch.Generator().manual_seed(step)
            optimiser.zero_grad(set_to_none=True)
            loss_of(runner, race(generator, self.batch, length, symbols), device).backward()
            optimiser.step()
        with torch.no_grad():
            drawn = race(torch.Generator().manual_seed(self.steps), 4 * self.batch, length, symbols)
            return float(loss_of(runner, drawn, device))


def _symbols(task: Task) -> int:
    """How many symbols the decoders of a task know. Raises ValueError if they are none, or know fewer than 6."""
    symbols = task.requires().get("vocabulary")
    if task.requires().get("kind") != "decoder" or not isinstance(symbols, int):
        raise ValueError("short_race needs a decoder of symbols.")
    if symbols < 6:
        raise ValueError(f"short_race needs at least 6 symbols, but the task has {symbols}.")
    return symbols


def loss_of(model: nn.Module, drawn: Drawn, device: torch.device) -> Tensor:
    """The mean loss of the targets that count, a scalar."""
    symbols, counts = (each.to(device) for each in drawn)
    context = Context()
    logits = model(symbols[:, :-1], context)  # [B, T - 1, V]
    wanted = symbols[:, 1:].masked_fill(~counts[:, 1:], -100)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=-100)
    return loss + context.loss().to(device)


def recall(generator: torch.Generator, batch: int, length: int, symbols: int) -> Drawn:
    """Pairs of a key and a value, then the keys in another order, each with its value."""
    half = symbols // 2
    pairs = min(half, length // 4)
    keys = torch.rand(batch, half, generator=generator).argsort(1)[:, :pairs]
    values = half + torch.randint(half, (batch, pairs), generator=generator)
    order = torch.rand(batch, pairs, generator=generator).argsort(1)
    shown = torch.stack([keys, values], 2).flatten(1)
    asked = torch.stack([keys.gather(1, order), values.gather(1, order)], 2).flatten(1)
    counts = torch.zeros(batch, 4 * pairs, dtype=torch.bool)
    counts[:, 2 * pairs + 1 :: 2] = True
    return torch.cat([shown, asked], 1), counts


def copying(generator: torch.Generator, batch: int, length: int, symbols: int) -> Drawn:
    """A random string, a separator, and the string again."""
    count = (length - 1) // 2
    text = 1 + torch.randint(symbols - 1, (batch, count), generator=generator)
    counts = torch.zeros(batch, 2 * count + 1, dtype=torch.bool)
    counts[:, count + 1 :] = True
    return torch.cat([text, torch.zeros(batch, 1, dtype=text.dtype), text], 1), counts


def compression(generator: torch.Generator, batch: int, length: int, symbols: int) -> Drawn:
    """A chain in which two symbols of a fixed table may follow each symbol."""
    table = torch.rand(symbols, symbols, generator=torch.Generator().manual_seed(0)).argsort(1)[:, :2]
    chain = [torch.randint(symbols, (batch,), generator=generator)]
    for _ in range(length - 1):
        chain.append(table[chain[-1], torch.randint(2, (batch,), generator=generator)])
    return torch.stack(chain, 1), torch.ones(batch, length, dtype=torch.bool)
