"""Generates symbols after a prompt: by sampling, or by beam search.

B sequences, P positions of the prompt, K beams, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nas.errors import UsageError
from nas.generation.reader import SequenceReader, TooLong
from nas.generation.sampling import Sampling


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
