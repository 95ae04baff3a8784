"""Reads a sequence symbol by symbol: with kept state if the model streams, else the whole sequence again each time.

B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from nas.errors import UsageError
from searchspace.contract import Context, Streams
from searchspace.lanes import of_rows


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
