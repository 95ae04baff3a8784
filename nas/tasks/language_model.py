"""Predict the next byte or character of a text; scored in bits per byte, so that the two levels compare.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks import text
from nas.tasks.contract import Split, Task
from nas.tasks.options import fractions, one_of, whole_number
from nas.tasks.registry import TaskProblem, task
from searchspace.contract import Context
from searchspace.tree import Scalar

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Windows = tuple[Tensor, Tensor, Tensor]  # inputs [B, T], targets [B, T], the UTF-8 bytes of each target [B, T]


@task("language_model")
class LanguageModel(Task):
    """data: glob patterns of text files; none means the embedded corpus. level: bytes or characters. split: the parts,
    each one piece of the text, to train on, to choose by and to test with. evaluation: positions to evaluate on, spread
    over the held-out part; None for all of it."""

    def __init__(
        self,
        data: str | Sequence[str] | None = None,
        level: str = "bytes",
        length: int = 128,
        batch: int = 16,
        split: Sequence[float] = (0.9, 0.05, 0.05),
        evaluation: int | None = 32_768,
    ) -> None:
        one_of("level", level, text.LEVELS)
        whole_number("length", length)
        whole_number("batch", batch)
        if evaluation is not None:
            whole_number("evaluation", evaluation, low=length)
        self.data, self.level, self.length, self.batch = _patterns(data), level, length, batch
        self.split, self.evaluation = fractions("split", split, len(SPLITS)), evaluation

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        patterns = _patterns(options.get("data"))
        if patterns is None:
            return dict(options)
        return {**options, "data": [str((folder / Path(pattern).expanduser()).absolute()) for pattern in patterns]}

    def prepare(self, cache: Path | None) -> None:
        self.text = text.read(self.data, self.level, cache)
        for part in SPLITS:
            low, high = self.part(part)
            if high - low <= self.length:
                raise TaskProblem(
                    f"The {part} part of the text has {high - low} {self.level}, but a window needs "
                    f"{self.length + 1} (length + 1). Give more text, a smaller length, or another split."
                )

    @property
    def data_hash(self) -> str:
        return self.text.sha256

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "decoder", "vocabulary": self.text.vocabulary}

    def part(self, split: Split) -> tuple[int, int]:
        """The first symbol of a part and the one after its last; every window lies in one part."""
        size, index = len(self.text.symbols), SPLITS.index(split)
        return int(sum(self.split[:index]) * size), size if split == "test" else int(
            sum(self.split[: index + 1]) * size
        )

    def draw(self, split: Split, seed: int, index: int) -> Windows:
        low, high = self.part(split)
        random = np.random.default_rng([seed, index])
        return self._windows(random.integers(low, high - self.length, self.batch))

    def held_out(self, split: Split) -> Iterator[Windows]:
        """Windows side by side, or where `evaluation` asks for fewer, spread evenly."""
        low, high = self.part(split)
        fit = (high - low - 1) // self.length
        count = fit if self.evaluation is None else min(fit, self.evaluation // self.length)
        starts = low + self.length * (np.arange(count) * fit // count)
        return (self._windows(starts[first : first + self.batch]) for first in range(0, count, self.batch))

    def _windows(self, starts: np.ndarray) -> Windows:
        places = starts[:, None] + np.arange(self.length + 1)  # [B, T + 1]
        symbols = self.text.symbols[places].astype(np.int64)
        inputs, targets = symbols[:, :-1], symbols[:, 1:]
        widths = self.text.widths[targets]
        return torch.from_numpy(inputs.copy()), torch.from_numpy(targets.copy()), torch.from_numpy(widths)

    def loss(self, model: nn.Module, batch: Windows, context: Context) -> Tensor:
        """Mean nats a position."""
        inputs, targets, _ = batch
        logits = model(inputs, context)  # [B, T, V]
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def metrics(self, model: nn.Module, batches: Iterable[Windows]) -> dict[str, float]:
        """loss: nats a symbol. bits_per_byte: all bits over all UTF-8 bytes of the symbols predicted."""
        nats = symbols = width = 0.0
        for batch in batches:
            _, targets, widths = batch
            nats += self.loss(model, batch, Context()).item() * targets.numel()
            symbols += targets.numel()
            width += float(widths.sum())
        return {"bits_per_byte": nats / math.log(2) / width, "loss": nats / symbols}


def _patterns(data: str | Sequence[str] | None) -> list[str] | None:
    if data is None:
        return None
    patterns = [data] if isinstance(data, str) else data
    if not isinstance(patterns, Sequence) or not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"data must be a path, a pattern such as texts/*.txt, or a list of them, but got {data!r}.")
    return list(patterns)
