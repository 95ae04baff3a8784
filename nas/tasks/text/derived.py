"""The base of the tasks that change pieces of text: where the text comes from. B batch, T length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from nas.tasks.classification import Classification
from nas.tasks.contract import Batch, Split
from nas.tasks.text.language_model import LanguageModel
from nas.tasks.vocabulary import Vocabulary


class OfText(Classification):
    """The options are those of `language_model`: data, level, length, batch, evaluation.

    special: names of the symbols that the task adds to those of the text.
    """

    special: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **options: Any) -> None:
        self.source = LanguageModel(**options)
        self.length, self.batch = self.source.length, self.source.batch

    @classmethod
    def resolve(cls, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        return LanguageModel.resolve(options, folder)

    def prepare(self, cache: Path | None) -> None:
        """Read the text. Raises TaskProblem if it cannot be read or is too short."""
        self.source.prepare(cache)

    @property
    def data_hash(self) -> str:
        return self.source.data_hash

    @property
    def symbols(self) -> int:
        """How many symbols the text has; the special ones come after them."""
        return self.source.text.size

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        return self.source.text.vocabulary_with(self.special)

    @abstractmethod
    def examples(self, text: Tensor, random: np.random.Generator) -> Batch:
        """A batch from text: [B, T]; `random` makes all random choices."""

    def draw(self, split: Split, seed: int, index: int) -> Batch:
        return self.examples(self.source.draw(split, seed, index)[0], np.random.default_rng([seed, index, 1]))

    def held_out(self, split: Split) -> Iterator[Batch]:
        for index, windows in enumerate(self.source.held_out(split)):
            yield self.examples(windows[0], np.random.default_rng([0, index, 2]))
