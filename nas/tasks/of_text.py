"""What the tasks made of pieces of text share: where the text comes from. B batch, T length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from nas.tasks.answers import Answered
from nas.tasks.contract import Batch, Split
from nas.tasks.language_model import LanguageModel


class OfText(Answered):
    """The options are those of `language_model`: data, level, length, batch, evaluation."""

    def __init__(self, **options: Any) -> None:
        self.source = LanguageModel(**options)
        self.length, self.batch = self.source.length, self.source.batch

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        return LanguageModel.resolve(options, folder)

    def prepare(self, cache: Path | None) -> None:
        self.source.prepare(cache)

    @property
    def data_hash(self) -> str:
        return self.source.data_hash

    @property
    def symbols(self) -> int:
        """How many the text has; the number after the last is free for a symbol of the task's own."""
        return self.source.text.vocabulary

    @abstractmethod
    def examples(self, text: Tensor, random: np.random.Generator) -> Batch:
        """text: [B, T] -> a batch; `random` decides what is to be decided."""

    def draw(self, split: Split, seed: int, index: int) -> Batch:
        return self.examples(self.source.draw(split, seed, index)[0], np.random.default_rng([seed, index, 1]))

    def held_out(self, split: Split) -> Iterator[Batch]:
        for index, windows in enumerate(self.source.held_out(split)):
            yield self.examples(windows[0], np.random.default_rng([0, index, 2]))
