"""Translate sentences: an encoder reads the source, a decoder writes the target.

Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", https://arxiv.org/abs/1409.3215. B batch,
T length, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.documents import Evaluation, Tally
from nas.options import PlainValidator, Positive
from nas.tasks.contract import Metric, Split, Task, greedy
from nas.tasks.own import TaskProblem
from nas.tasks.prepared import prepared
from nas.tasks.registry import task
from nas.tasks.text import options, pairs
from nas.tasks.text.options import FRACTIONS, Fractions
from nas.tasks.vocabulary import Vocabulary
from searchspace.contract import Context
from searchspace.tree import Scalar


def _files(value: Any) -> Any:
    found = options.patterns(value)
    if found is None:
        raise ValueError("must be a path, a pattern such as texts/*.en, or a list of them")
    return found


Files = Annotated[str | Sequence[str] | Mapping[str, Any], PlainValidator(_files)]

# source [B, T], target [B, T], lengths [B, 2], UTF-8 bytes of each target symbol [B, T], numbers of the pairs [B]
Batch = tuple[Tensor, ...]


@task("translation")
class Translation(Task):
    """source, target: aligned text files, one sentence per line, may end in .gz; or those of each part. level: bytes or
    words. words: the size of the vocabulary, which has the most frequent words of the training part. length: symbols of
    a sentence; longer pairs are left out of training, and cut for evaluation. evaluation: pairs to evaluate on; None is
    all."""

    reports = (Metric("loss", unit="nats"), Metric("bits_per_byte", unit="bits"), Metric("error", unit="fraction"))
    target_kind = "classes"

    def __init__(
        self,
        source: Files,
        target: Files,
        level: Literal["bytes", "words"] = "bytes",
        words: Positive = 8_000,
        length: Positive = 128,
        batch: Positive = 32,
        split: Fractions = FRACTIONS,
        evaluation: Positive | None = None,
    ) -> None:
        self.source, self.target, self.level, self.words = _files(source), _files(target), level, words
        self.length = self.source_length = self.target_length = length
        self.batch, self.split, self.evaluation = batch, options.fractions(split), evaluation

    @classmethod
    def resolve(cls, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """The options with patterns relative to `folder`. Raises ValueError if `source` or `target` is no pattern."""
        found = dict(given)
        for name in ("source", "target"):
            try:
                if name in given:
                    found[name] = options.absolute(given[name], folder)
            except ValueError as error:
                raise ValueError(f"{name} {error}, but got {given[name]!r}.") from error
        return found

    def prepare(self, cache: Path | None) -> None:
        """Read the pairs. Raises TaskProblem if they cannot be read, or if no pair of a part fits."""
        if cache is None:
            self.ready = self._made()
        else:
            key = pairs.key(self.source, self.target, self.level, self.words, self.length, self.split)
            folder = prepared(cache, f"pairs3-{key}", lambda folder: pairs.save(self._made(), folder))
            self.ready = pairs.opened(folder)
        for split, each in self.ready.coded.items():
            if not len(each):
                raise TaskProblem(
                    f"The {split} part has no pair of at most {self.length} {self.level} a sentence. Give more pairs, "
                    "a larger length, or another split."
                )

    def _made(self) -> pairs.Ready:
        return pairs.ready(pairs.read(self.source, self.target, self.split), self.level, self.words, self.length)

    @property
    def vocabulary(self) -> Vocabulary:  # type: ignore[override]
        return self.ready.coder.vocabulary

    @property
    def data_hash(self) -> str:
        return self.ready.facts["sha256"]

    def data_facts(self) -> dict[str, Any]:
        """Sizes are UTF-8 bytes of the targets. too_long: pairs that training leaves out and that are cut elsewhere."""
        return dict(self.ready.facts)

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder_decoder", "vocabulary": self.vocabulary.size}

    def draw(self, split: Split, seed: int, index: int) -> Batch:
        chosen = np.random.default_rng([seed, index]).integers(len(self.ready.coded[split]), size=self.batch)
        return self._batch(split, chosen)

    def held_out(self, split: Split) -> Iterator[Batch]:
        """All pairs in order; with a smaller `evaluation`, pairs spread evenly over the part."""
        return self._held_out(split, self._held_out_pairs(split))

    def some_held_out(self, split: Split, positions: int) -> Iterator[Batch]:
        """As `held_out`, with fewer pairs, spread evenly over the part."""
        return self._held_out(split, min(self._held_out_pairs(split), max(1, positions // self.length)))

    def held_out_positions(self, split: Split) -> int:
        return self.length * self._held_out_pairs(split)

    def _held_out_pairs(self, split: Split) -> int:
        total = len(self.ready.coded[split])
        return total if self.evaluation is None else min(total, self.evaluation)

    def _held_out(self, split: Split, count: int) -> Iterator[Batch]:
        chosen, size = np.arange(count) * len(self.ready.coded[split]) // count, self.held_out_batch
        return (self._batch(split, chosen[first : first + size]) for first in range(0, count, size))

    def _batch(self, split: Split, chosen: np.ndarray) -> Batch:
        part = self.ready.coded[split]
        found = (part.sources[chosen], part.targets[chosen], part.lengths[chosen], part.widths[chosen], chosen)
        return tuple(torch.from_numpy(each.astype(np.int64)) for each in found)

    def outputs(self, model: nn.Module, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of the N target symbols that are not padding, [N, V], given the true ones before them, and these
        symbols, [N]."""
        source, target = batch[:2]
        here, there = self._real(batch)
        inputs = torch.cat([self._start(target), target[:, :-1]], dim=1)
        logits = model(source, inputs, replace(context, padding=there, memory_padding=here))  # type: ignore[call-arg]  # a lane
        return logits[there], target[there]

    def metrics(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, float]:
        """loss: nats a target symbol with the end. bits_per_byte: all bits over all UTF-8 bytes of the targets."""
        return self._evaluation(model, batches).metrics

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        """The metrics, each of them by pair."""
        return self._evaluation(model, batches)

    def _evaluation(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        nats, bits, errors = Tally(), Tally(), Tally()
        for batch in batches:
            logits, targets = self.outputs(model, batch, Context())
            losses = F.cross_entropy(logits.detach().float(), targets, reduction="none").double().cpu().numpy()
            lengths = batch[2][:, 1].cpu()
            numbers = batch[4].cpu().repeat_interleave(lengths).numpy()
            widths = batch[3].cpu()[self._real(batch)[1].cpu()]
            nats.add(numbers, losses)
            bits.add(numbers, losses / math.log(2), widths.double().numpy())
            errors.add(numbers, (logits.argmax(1) != targets).cpu().numpy())
        found = nats.documents("loss"), bits.documents("bits_per_byte"), errors.documents("error")
        return Evaluation({each.metric: each.value for each in found}, found)

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The translations that `model` generates greedily, [B, T]; symbols after the end have no meaning."""
        here, _ = self._real(batch)
        return greedy(model, self._start(batch[1]), self.length, batch[0], padding=here)

    def _real(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Whether each position of the source and of the target is real, not padding; bool [B, T] each."""
        places = torch.arange(self.length, device=batch[2].device)
        return places < batch[2][:, :1], places < batch[2][:, 1:]

    def _start(self, target: Tensor) -> Tensor:
        return torch.full_like(target[:, :1], self.ready.coder.start)
