"""The base class of tasks that change pieces of text; it reads the text. B batch, T length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from nas.documents import Tally
from nas.options import Positive
from nas.tasks.classification import Classification
from nas.tasks.contract import Batch, Split
from nas.tasks.own import TaskProblem
from nas.tasks.text.language_model import LanguageModel
from nas.tasks.text.options import FRACTIONS, Data, Documents, Fractions, Level, SplitBy
from nas.tasks.vocabulary import Vocabulary


class OfText(Classification):
    """The options are those of `language_model`. Adjacent pieces of the held-out text are scored. A task with other
    defaults or more options passes the rest on.

    special: names of the symbols that the task adds to those of the text.
    """

    special: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[int] = 2  # tensors of a batch, without the documents

    def __init__(
        self,
        data: Data = None,
        level: Level = "bytes",
        length: Positive = 32,
        batch: Positive = 32,
        split: Fractions = FRACTIONS,
        evaluation: Positive | None = None,
        split_by: SplitBy = "documents",
        documents: Documents = "auto",
        remove_overlap: bool = False,
    ) -> None:
        self.source = LanguageModel(
            data, level, length, batch, split, evaluation, split_by, documents, remove_overlap=remove_overlap
        )
        self.length, self.batch = length, batch

    @classmethod
    def resolve(cls, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        return LanguageModel.resolve(given, folder)

    def prepare(self, cache: Path | None) -> None:
        """Read the text. Raises TaskProblem if it cannot be read or is too short."""
        self.source.prepare(cache)
        for split in ("validation", "test") if self.source.remove_overlap else ():
            if next(self.source.pieces(split), None) is None:
                raise TaskProblem(
                    f"remove_overlap: at least half of each piece of the {split} part is in the training part."
                )

    @property
    def data_hash(self) -> str:
        return self.source.data_hash

    def data_facts(self) -> dict[str, Any]:
        return self.source.data_facts()

    @property
    def symbols(self) -> int:
        """The number of symbols of the text; the special symbols come after them."""
        return self.source.text.size

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        return self.source.text.vocabulary_with(self.special)

    @abstractmethod
    def examples(self, text: Tensor, random: np.random.Generator) -> tuple[Tensor, ...]:
        """A batch of `parts` tensors from text: [B, T]; `random` makes all random choices."""

    def draw(self, split: Split, seed: int, index: int) -> Batch:
        return self.examples(self.source.draw(split, seed, index)[0], np.random.default_rng([seed, index, 1]))

    def held_out(self, split: Split) -> Iterator[Batch]:
        """As `draw`, with the number of the document of each example in addition, [B]."""
        return self._held_out(split, None)

    def some_held_out(self, split: Split, positions: int) -> Iterator[Batch]:
        return self._held_out(split, positions)

    def held_out_positions(self, split: Split) -> int:
        return self.source.held_out_positions(split)

    def _held_out(self, split: Split, most: int | None) -> Iterator[Batch]:
        for index, (text, documents) in enumerate(self.source.pieces(split, most)):
            yield (*self.examples(text, np.random.default_rng([0, index, 2])), documents)

    def tally(self) -> Tally:
        return Tally(self.source.text.names)

    def documents_of(self, batch: Batch, examples: int, before: int) -> Tensor:
        """The numbers of the documents that `batch` holds, else those of one document; [B]."""
        return batch[-1] if len(batch) > self.parts else torch.zeros(examples, dtype=torch.int64)
