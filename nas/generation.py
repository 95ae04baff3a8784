"""Text from a trained model: sampling and beam search, with the state of a streaming model kept between symbols.

Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", https://arxiv.org/abs/1904.09751, section 3.1,
for top-p. B sequences, T positions, P positions of the prompt, K beams, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nas.errors import UsageError
from searchspace.contract import Context, Streams
from searchspace.lanes import of_rows


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


class TooLong(UsageError):
    """The text has more positions than the model can read."""


@contextmanager
def _positions() -> Iterator[None]:
    """A model says with a ValueError that it cannot read a position."""
    try:
        yield
    except ValueError as error:
        raise TooLong(str(error)) from None


class SequenceReader:
    """A decoder, or an encoder-decoder with its encoded source, that is fed the next symbols of B sequences.

    source: [B, S] of int64, what an encoder reads. whole: read the whole sequence again, even if the model streams.
    Raises UsageError for an encoder, because it does not generate, and for a source that is too long.
    """

    def __init__(self, model: nn.Module, source: Tensor | None = None, *, whole: bool = False) -> None:
        if not hasattr(model, "cannot_stream"):
            raise UsageError("Only a decoder or an encoder-decoder generates text, but the model is an encoder.")
        self.model = model
        self.streams = not model.cannot_stream and not whole
        self.context = Context(streams=Streams() if self.streams else None)
        self.encodes = hasattr(model, "encode")
        if self.encodes:
            if source is None:
                raise UsageError("An encoder-decoder needs a source to read.")
            with _positions():
                model.encode(source, self.context)  # type: ignore[operator]
        self.read: Tensor | None = None

    def feed(self, symbols: Tensor) -> Tensor:
        """symbols: [B, T], the next ones -> the logits after the last of them, [B, V].

        Raises TooLong if the model has learned a vector for fewer positions.
        """
        if not self.streams:
            self.read = symbols if self.read is None else torch.cat([self.read, symbols], dim=1)
            symbols = self.read
        call = self.model.decode if self.encodes else self.model
        with _positions():
            return call(symbols, self.context)[:, -1].float()  # type: ignore[operator]

    def reorder(self, index: Tensor) -> None:
        """Continue sequence `index[b]` in place b; index: [B] of int64."""
        if self.context.streams is not None:
            self.context.streams.reorder(index)
        if self.read is not None:
            self.read = self.read[index]
        self.context = self.context.mapped(of_rows(index))


@dataclass(frozen=True)
class Generated:
    """symbols: the new ones, without the prompt and without `end`. prompt_seconds: to read the prompt and choose the
    first symbol; seconds: for the others. score: the mean log-probability of the best beam, None for a sample. cut: why
    the model could not read further; None if it could.
    """

    symbols: list[int]
    prompt_seconds: float
    seconds: float
    score: float | None = None
    cut: str | None = None

    @property
    def tokens_per_second(self) -> float:
        """Symbols after the first one in a second; 0 if there is one symbol only."""
        return (len(self.symbols) - 1) / self.seconds if len(self.symbols) > 1 and self.seconds else 0.0


def sample(
    model: nn.Module,
    prompt: Tensor,
    steps: int,
    sampling: Sampling | None = None,
    *,
    source: Tensor | None = None,
    end: int | None = None,
    seed: int = 0,
    whole: bool = False,
    said: Callable[[int], None] = lambda symbol: None,
) -> Generated:
    """Draw up to `steps` symbols after the prompt, [1, P] of int64; stop at the symbol `end`.

    source: [1, S], what an encoder reads. said: called with each new symbol. whole: keep no state. Raises UsageError
    for an empty prompt, one that is too long for the model, or an encoder.
    """
    _check(prompt)
    sampling, generator = sampling or Sampling(), torch.Generator(prompt.device).manual_seed(seed)
    found: list[int] = []
    cut = None
    began = first = time.perf_counter()
    with torch.inference_mode():
        reader = SequenceReader(model, source, whole=whole)
        symbols = prompt
        for number in range(steps):
            try:
                chosen = sampling.next(reader.feed(symbols), generator)
            except TooLong as error:
                cut = _cut(error, number)
                break
            if number == 0:
                first = time.perf_counter()
            if int(chosen) == end:
                break
            found.append(int(chosen))
            said(found[-1])
            symbols = chosen[:, None]
    return Generated(found, first - began, time.perf_counter() - first, cut=cut)


def beam(
    model: nn.Module,
    prompt: Tensor,
    steps: int,
    beams: int,
    *,
    source: Tensor | None = None,
    end: int | None = None,
    whole: bool = False,
) -> Generated:
    """The sequence with the highest mean log-probability that a search with `beams` beams finds.

    Arguments as for `sample`. Raises UsageError for fewer than one beam, an empty prompt or an encoder.
    """
    _check(prompt)
    if beams < 1:
        raise UsageError(f"beams must be at least 1, but got {beams}.")
    began = first = time.perf_counter()
    done: list[tuple[float, list[int]]] = []
    cut = None
    with torch.inference_mode():
        reader = SequenceReader(model, None if source is None else source.expand(beams, -1), whole=whole)
        symbols = prompt.expand(beams, -1)
        scores = torch.full((beams,), -torch.inf, dtype=torch.float64, device=prompt.device)
        scores[0] = 0.0  # the beams are equal until the first symbol, so only one of them counts
        beam_symbols: list[list[int]] = [[] for _ in range(beams)]
        for number in range(steps):
            try:
                every = scores[:, None] + reader.feed(symbols).double().log_softmax(-1)  # [K, V]
            except TooLong as error:
                cut = _cut(error, number)
                break
            if number == 0:
                first = time.perf_counter()
            best, places = every.flatten().topk(min(2 * beams, every.numel()))
            kept: list[tuple[float, int, int]] = []
            for score, place in zip(best.tolist(), places.tolist()):
                if score == -torch.inf:  # beams that stand in until there are enough
                    break
                row, symbol = divmod(place, every.shape[1])
                if symbol == end:
                    done.append((score / (number + 1), beam_symbols[row]))
                elif len(kept) < beams:
                    kept.append((score, row, symbol))
            if not kept or (done and max(done)[0] >= kept[0][0] / (number + 1) and len(done) >= beams):
                break
            kept += [(-torch.inf, *kept[-1][1:])] * (beams - len(kept))
            beam_symbols = [[*beam_symbols[row], symbol] for _, row, symbol in kept]
            scores = scores.new_tensor([score for score, _, _ in kept])
            reader.reorder(torch.tensor([row for _, row, _ in kept], device=prompt.device))
            symbols = torch.tensor([[symbol] for _, _, symbol in kept], device=prompt.device)
        done += [(score / max(1, len(each)), each) for score, each in zip(scores.tolist(), beam_symbols)]
    score, found = max(done)
    return Generated(found, first - began, time.perf_counter() - first, score, cut)


def _cut(error: TooLong, number: int) -> str:
    """Why the text ends after `number` symbols. Raises `error` if not even the prompt could be read."""
    if not number:
        raise error
    return str(error)


def _check(prompt: Tensor) -> None:
    if prompt.ndim != 2 or not prompt.numel():
        raise UsageError("The prompt must have at least one symbol.")
