"""Predict the next byte or character of a text. The score is in bits per byte, so both levels can be compared.

B batch, T length, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.documents import Evaluation, Tally
from nas.options import Positive
from nas.tasks.contract import SPLITS, Metric, Split, Task, greedy
from nas.tasks.own import TaskProblem
from nas.tasks.registry import task
from nas.tasks.text import facts, options, parts, reading
from nas.tasks.text.options import FRACTIONS, Data, Documents, Fractions, Level, SplitBy
from nas.tasks.text.parts import Rules
from nas.tasks.vocabulary import Vocabulary
from searchspace.contract import Context
from searchspace.tree import Scalar
from searchspace.wording import plural

# inputs [B, T], targets [B, T], the UTF-8 bytes of each target [B, T]; of held-out data also the number of the document
# of each target [B, T]. A target of 0 bytes is not scored.
Windows = tuple[Tensor, ...]


@task("language_model")
class LanguageModel(Task):
    """data: glob patterns of text files; None is the embedded corpus. level: bytes or characters. documents: where
    documents begin. split_by, split: whether documents or positions are divided, and the shares to train on, to
    validate on and to test on. remove_overlap: score no byte in a string of 32 bytes that the training part has too.
    evaluation: positions to evaluate on, spread over the held-out part; None is all of it. segments: windows of
    `length` that are read one after the other in training, a step each, by a model that keeps its state in between."""

    reports = (Metric("bits_per_byte", unit="bits"), Metric("loss", unit="nats"))
    target_kind = "classes"
    counted: np.ndarray | None = None  # whether each held-out symbol is scored; None: all are

    def __init__(
        self,
        data: Data = None,
        level: Level = "bytes",
        length: Positive = 128,
        batch: Positive = 16,
        split: Fractions = FRACTIONS,
        evaluation: Positive | None = None,
        split_by: SplitBy = "documents",
        documents: Documents = "auto",
        remove_overlap: bool = False,
        segments: Positive = 1,
    ) -> None:
        if evaluation is not None and evaluation < length:
            raise ValueError(f"evaluation must be at least length, {length}, but got {evaluation}.")
        self.data, self.level, self.length, self.batch = options.patterns(data), level, length, batch
        self.split, self.split_by, self.evaluation = options.fractions(split), split_by, evaluation
        self.rules = Rules(split_by, self.split, documents)
        self.remove_overlap, self.segments = remove_overlap, segments

    @classmethod
    def resolve(cls, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """The options with the patterns of `data` relative to `folder`. Raises ValueError if `data` is no pattern."""
        try:
            data = options.absolute(given.get("data"), folder)
        except ValueError as error:
            raise ValueError(f"data {error}, but got {given['data']!r}.") from error
        return dict(given) if data is None else {**given, "data": data}

    def prepare(self, cache: Path | None) -> None:
        """Read the text. Raises TaskProblem if it cannot be read or is too short."""
        self.text = reading.read(self.data, self.level, cache, self.rules)
        self.cache = cache
        for part in SPLITS:
            low, high = self.part(part)
            needed = self.length * (self.segments if part == "train" else 1) + 1
            if high - low < needed:
                segments = " * segments" if needed > self.length + 1 else ""
                raise TaskProblem(
                    f"The {part} part of the text has {high - low} {self.level}, but a window needs "
                    f"{needed} (length{segments} + 1). Give more text, a smaller length, or another split."
                    + self._few_documents()
                )
        self.counted = facts.counted(self.text, self.part, self.cache) if self.remove_overlap else None

    def _few_documents(self) -> str:
        """A hint if there are too few documents for three parts."""
        count = len(self.text.names)
        if self.split_by != "documents" or count >= parts.FEW:
            return ""
        document = self.text.facts["document"]
        return f" The text has {plural(count, 'document')}; a document is {document}. `documents` may cut it finer."

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        return self.text.vocabulary

    @property
    def data_hash(self) -> str:
        return self.text.sha256

    def data_facts(self) -> dict[str, Any]:
        return facts.of_text(self.text, self.part, self.cache, removed=self.remove_overlap)

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "decoder", "vocabulary": self.text.size}

    def part(self, split: Split) -> tuple[int, int]:
        """The first symbol of a part and the one after its last; every window lies in one part."""
        size, index = len(self.text.symbols), SPLITS.index(split)
        if self.text.bounds is not None:
            ends = (0, *self.text.bounds, size)
            return ends[index], ends[index + 1]
        return int(sum(self.split[:index]) * size), size if split == "test" else int(
            sum(self.split[: index + 1]) * size
        )

    def draw(self, split: Split, seed: int, index: int) -> Windows:
        low, high = self.part(split)
        sequence, segment = divmod(index, self.segments if split == "train" else 1)
        random = np.random.default_rng([seed, sequence])
        last = high - self.length * (self.segments if split == "train" else 1)
        starts = random.integers(low, last, self.batch) + segment * self.length
        return self._windows(starts[:, None] + self._places())

    def held_out(self, split: Split) -> Iterator[Windows]:
        """Adjacent windows; with a smaller `evaluation`, windows spread evenly over the part.

        If documents are divided, each symbol of the part is a target once: the symbol before the first one is the last
        one, and the last window scores only what is left.
        """
        return self._held_out(split, self.evaluation)

    def some_held_out(self, split: Split, positions: int) -> Iterator[Windows]:
        """As `held_out`, with `positions` in place of a larger `evaluation`."""
        return self._held_out(split, positions if self.evaluation is None else min(positions, self.evaluation))

    def held_out_positions(self, split: Split) -> int:
        """How many positions `held_out` gives."""
        return self.length * len(self._starts(split, self.evaluation))

    def _held_out(self, split: Split, positions: int | None) -> Iterator[Windows]:
        low, high = self.part(split)
        for starts in self._batches(self._starts(split, positions)):
            places = starts[:, None] + self._places()  # [B, T + 1]
            if self.split_by == "documents":
                places = np.where(places < low, high - 1, places)
            inputs, targets, widths = self._windows(places)
            counts = self._scored(places[:, 1:], split)
            yield inputs, targets, widths * torch.from_numpy(counts), torch.from_numpy(self._documents(places[:, 1:]))

    def pieces(self, split: Split, most: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Adjacent pieces of held-out text, [B, T], and the number of the document in the middle of each, [B].

        With `remove_overlap`, a piece is left out if half of it or more is not scored. most: positions, about.
        """
        low, high = self.part(split)
        positions = min((each for each in (most, self.evaluation) if each is not None), default=None)
        starts = self._starts(split, positions)
        if self.split_by == "documents":
            starts = starts[:-1] + 1 if (high - low) % self.length and positions is None else starts + 1
        if self.counted is not None:
            places = starts[:, None] + np.arange(self.length)
            starts = starts[self._scored(places, split).mean(axis=1) > 0.5]
        for first in self._batches(starts):
            places = first[:, None] + np.arange(self.length)
            text = torch.from_numpy(self.text.symbols[places].astype(np.int64))
            yield text, torch.from_numpy(self._documents(places[:, self.length // 2]))

    def _starts(self, split: Split, positions: int | None) -> np.ndarray:
        """Where the held-out windows begin: the symbol before their first target. positions: None is all."""
        low, high = self.part(split)
        if self.split_by == "position":
            fit = (high - low - 1) // self.length
            count = fit if positions is None else min(fit, max(1, positions // self.length))
            return low + self.length * (np.arange(count) * fit // count)
        fit = -(-(high - low) // self.length)
        count = fit if positions is None else min(fit, max(1, positions // self.length))
        return np.minimum(low + self.length * (np.arange(count) * fit // count), high - self.length) - 1

    def _scored(self, places: np.ndarray, split: Split) -> np.ndarray:
        """Whether each target is scored, uint8 of the shape of `places`, [B, T]."""
        low, high = self.part(split)
        counts = np.ones(places.shape, np.uint8)
        if self.split_by == "documents" and len(places):
            overlaps = (places[:, 0] - low) % self.length != 0  # the last window begins within the one before it
            left = (high - low) % self.length
            counts[overlaps, : self.length - left] = 0
        if self.counted is not None:
            counts &= self.counted[places - self.part("validation")[0]]
        return counts

    def _documents(self, places: np.ndarray) -> np.ndarray:
        return self.text.documents(places).astype(np.int64)

    def _batches(self, starts: np.ndarray) -> Iterator[np.ndarray]:
        size = self.held_out_batch
        return (starts[first : first + size] for first in range(0, len(starts), size))

    def _places(self) -> np.ndarray:
        return np.arange(self.length + 1)

    def _windows(self, places: np.ndarray) -> Windows:
        symbols = self.text.symbols[places].astype(np.int64)
        inputs, targets = symbols[:, :-1], symbols[:, 1:]
        widths = self.text.widths[targets]
        return torch.from_numpy(inputs.copy()), torch.from_numpy(targets.copy()), torch.from_numpy(widths)

    def outputs(self, model: nn.Module, batch: Windows, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of every position, [B T, V], and the symbols that come next, [B T]."""
        inputs, targets = batch[:2]
        return model(inputs, context).flatten(0, 1), targets.flatten()

    def metrics(self, model: nn.Module, batches: Iterable[Windows]) -> dict[str, float]:
        """loss: nats a symbol. bits_per_byte: all bits over all UTF-8 bytes of the predicted symbols."""
        return self._evaluation(model, batches).metrics

    def evaluate(self, model: nn.Module, batches: Iterable[Windows]) -> Evaluation:
        """The metrics, and the bits and UTF-8 bytes, or nats and symbols, of each document."""
        return self._evaluation(model, batches)

    def _evaluation(self, model: nn.Module, batches: Iterable[Windows]) -> Evaluation:
        bits, nats = Tally(self.text.names), Tally(self.text.names)
        for batch in batches:
            logits, targets = self.outputs(model, batch, Context())
            losses = F.cross_entropy(logits.detach().float(), targets, reduction="none").double().cpu()
            widths = batch[2].flatten().cpu()
            numbers = batch[3].flatten().cpu() if len(batch) > 3 else torch.zeros_like(targets, device="cpu")
            scored = widths > 0
            documents, lost = numbers[scored].numpy(), losses[scored].numpy()
            bits.add(documents, lost / math.log(2), widths[scored].double().numpy())
            nats.add(documents, lost)
        found = bits.documents("bits_per_byte"), nats.documents("loss")
        return Evaluation({each.metric: each.value for each in found}, found)

    def predict(self, model: nn.Module, batch: Windows) -> Tensor:
        """The second half of each sequence as `model` continues the first half greedily, [B, T - T // 2].

        A sequence of one position is the whole prompt, and one symbol is generated.
        """
        inputs = batch[0]
        prompt = max(1, inputs.shape[1] // 2)
        return greedy(model, inputs[:, :prompt], max(1, inputs.shape[1] - prompt))
