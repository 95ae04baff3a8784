"""Predict the next byte or character of a text; scored in bits per byte, so that the two levels compare.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from nas.criteria.registry import plain
from nas.options import Check, Positive
from nas.tasks.contract import SPLITS, Metric, Split, Task, greedy
from nas.tasks.own import TaskProblem
from nas.tasks.registry import task
from nas.tasks.text import reading
from nas.tasks.vocabulary import Vocabulary
from searchspace.contract import Context
from searchspace.tree import Scalar

Windows = tuple[Tensor, Tensor, Tensor]  # inputs [B, T], targets [B, T], the UTF-8 bytes of each target [B, T]


def _patterns(data: Any) -> list[str] | None:
    """`data` as a list of patterns. Raises ValueError for anything else."""
    if data is None:
        return None
    patterns = [data] if isinstance(data, str) else data
    if not isinstance(patterns, Sequence) or not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError("must be a path, a pattern such as texts/*.txt, or a list of them")
    return list(patterns)


def _fractions(value: Any) -> tuple[float, ...]:
    """`value` as one fraction for each split. Raises ValueError for anything else."""
    numbers = [part for part in value if isinstance(part, int | float)] if isinstance(value, list | tuple) else []
    if len(numbers) != len(SPLITS) or min(numbers) <= 0 or abs(sum(numbers) - 1) > 1e-9:
        raise ValueError(f"must be {len(SPLITS)} fractions above 0 that add up to 1")
    return tuple(numbers)


Data = Annotated[str | Sequence[str] | None, Check(_patterns)]
Level = Literal["bytes", "characters"]


@task("language_model")
class LanguageModel(Task):
    """data: glob patterns of text files; None is the embedded corpus. level: bytes or characters. split: the shares of
    the text to train on, to validate on and to test on, each one piece. evaluation: positions to evaluate on, spread
    over the held-out part; None is all of it."""

    reports = (Metric("bits_per_byte", unit="bits"), Metric("loss", unit="nats"))

    def __init__(
        self,
        data: Data = None,
        level: Level = "bytes",
        length: Positive = 128,
        batch: Positive = 16,
        split: Annotated[Sequence[float], Check(_fractions)] = (0.9, 0.05, 0.05),
        evaluation: Positive | None = 32_768,
    ) -> None:
        if evaluation is not None and evaluation < length:
            raise ValueError(f"evaluation must be at least length, {length}, but got {evaluation}.")
        self.data, self.level, self.length, self.batch = _patterns(data), level, length, batch
        self.split, self.evaluation = _fractions(split), evaluation

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """`options` with the patterns of `data` relative to `folder`. Raises ValueError if `data` is no pattern."""
        try:
            patterns = _patterns(options.get("data"))
        except ValueError as error:
            raise ValueError(f"data {error}, but got {options['data']!r}.") from error
        if patterns is None:
            return dict(options)
        return {**options, "data": [str((folder / Path(pattern).expanduser()).absolute()) for pattern in patterns]}

    def prepare(self, cache: Path | None) -> None:
        """Read the text. Raises TaskProblem if it cannot be read or is too short."""
        self.text = reading.read(self.data, self.level, cache)
        for part in SPLITS:
            low, high = self.part(part)
            if high - low <= self.length:
                raise TaskProblem(
                    f"The {part} part of the text has {high - low} {self.level}, but a window needs "
                    f"{self.length + 1} (length + 1). Give more text, a smaller length, or another split."
                )

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        return self.text.vocabulary

    @property
    def data_hash(self) -> str:
        return self.text.sha256

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "decoder", "vocabulary": self.text.size}

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
        """Adjacent windows; with a smaller `evaluation`, windows spread evenly over the part."""
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

    def outputs(self, model: nn.Module, batch: Windows, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of every position, [B T, V], and the symbols that come next, [B T]."""
        inputs, targets, _ = batch
        return model(inputs, context).flatten(0, 1), targets.flatten()

    def metrics(self, model: nn.Module, batches: Iterable[Windows]) -> dict[str, float]:
        """loss: nats a symbol. bits_per_byte: all bits over all UTF-8 bytes of the predicted symbols."""
        nats = symbols = width = 0.0
        for batch in batches:
            _, targets, widths = batch
            loss = plain("cross_entropy")(*self.outputs(model, batch, Context()))
            nats += loss.item() * targets.numel()
            symbols += targets.numel()
            width += float(widths.sum())
        return {"bits_per_byte": nats / math.log(2) / width, "loss": nats / symbols}

    def predict(self, model: nn.Module, batch: Windows) -> Tensor:
        """The second half of each sequence as `model` continues the first half greedily, [B, T - T // 2].

        A sequence of one position is the whole prompt, and one symbol is generated.
        """
        inputs = batch[0]
        prompt = max(1, inputs.shape[1] // 2)
        return greedy(model, inputs[:, :prompt], max(1, inputs.shape[1] - prompt))
