"""Reading in pieces: equal outputs, gradients that end, and a state of the declared size."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from searchspace.checking.cases import B, Case, S, cases, context, drawn, stream
from searchspace.checking.contract import Check, ensure, near
from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.state import kind
from searchspace.testing import primitives

DIFFERS = "reading in pieces of {} differs from reading at once"


def reading_in_pieces_equals_reading_at_once(case: Case) -> None:
    block = case.built()
    for pieces in ([1] * 9, [4, 1, 1, 3], [40, 131, 1, 2]):  # 131 exceeds every default window and chunk
        x = drawn(sum(pieces))
        found, _ = stream(block, x, pieces)
        near(found, block(x, context(x)), 1e-9, DIFFERS.format(pieces))


def reading_in_pieces_equals_reading_at_once_with_every_position(case: Case) -> None:
    """A block at its defaults with every position however configured, a varied block with each position's defaults.

    A block that never asks its context for the position, in pieces or at once, cannot depend on it: one is enough.
    """
    block, pieces, x = case.built(), [5, 1, 70, 3], drawn(79)
    chosen = [each for each in _positions() if case.defaults or each.defaults]
    for each in chosen if _asks_for_a_position(block, x) else chosen[:1]:
        position = each.built()
        found, _ = stream(block, x, pieces, position=position)
        near(found, block(x, context(x, position=position)), 1e-9, f"{each.id}: {DIFFERS.format(pieces)}")


@cache
def _positions() -> list[Case]:
    return [each for each in cases(primitives("position")) if each.causal]


@torch.no_grad()
def _asks_for_a_position(block: nn.Module, x: Tensor) -> bool:
    asked = []

    class Watched(Context):
        def __getattribute__(self, name: str) -> object:
            if name == "position":
                asked.append(name)
            return super().__getattribute__(name)

    streams = Streams()
    for piece in (x, x[:, :5], x[:, 5:6]):
        used = context(piece) if piece is x else context(piece, streams=streams)
        used.__class__ = Watched
        block(piece, used)
        streams.length += 0 if piece is x else piece.shape[1]
    return bool(asked)


def trains_in_pieces_whose_gradients_end_at_what_was_read_before(case: Case) -> None:
    """Truncated backpropagation: the second piece has the gradients that it has after a first piece without any."""
    x = drawn(11)
    gradients = []
    for first_learns in (True, False):
        torch.default_generator.manual_seed(0)
        block, streams = case.built().train(), Streams()
        with torch.set_grad_enabled(first_learns):
            first = block(x[:, :7], context(x[:, :7], streams=streams))
        if first_learns and first.requires_grad:
            first.square().sum().backward()
            block.zero_grad()
        streams.detach()
        streams.leave(7)
        piece = x[:, 7:].clone().requires_grad_()
        block(piece, context(piece, streams=streams)).square().sum().backward()
        gradients.append([each.grad for each in (piece, *block.parameters())])
    for found, expected in zip(*gradients, strict=True):
        ensure((found is None) == (expected is None), "the first piece decides whether a parameter has a gradient")
        if found is not None:
            near(found, expected, 1e-9, "gradients of the second piece go back to the first")


def state_takes_the_bytes_that_were_declared(case: Case) -> None:
    for dtype, every in ((torch.float32, ([1, 3, 3, 53, 5, 40], [131])), (torch.bfloat16, ([4, 3, 98],))):
        block = case.built(dtype)
        for pieces in every:
            streams = Streams()
            for piece in pieces:
                x = drawn(piece, dtype)
                stream(block, x, [piece], streams)
                shape = Shape(batch=B, length=streams.length, memory=S, element_bytes=x.element_size())
                declared, has, read = case.configured.cost(shape).state_bytes, streams.nbytes(), streams.length
                grown = sum(slot[name].nbytes for slot, name, axes in streams.tensors() if kind(axes) == "growing")
                said = case.configured.cost(shape).growing_bytes
                ensure(grown == said, f"after {read} positions {said} bytes that grow declared, {grown} kept")
                ensure(has == declared, f"after {read} positions of {dtype}: {declared} bytes declared, {has} kept")
                held = sum(
                    state.untyped_storage().nbytes() for slot in streams.slots.values() for state in slot.values()
                )
                ensure(held == has, f"a slice of {has} bytes keeps a tensor of {held} bytes alive")


def state_grows_as_its_axes_say(case: Case) -> None:
    block, sizes = case.built(), []
    for length in (131, 262):
        _, streams = stream(block, drawn(length), [length])
        sizes.append({name: slot[name].numel() for slot, name, _ in streams.tensors()})
        axes = {name: axes for _, name, axes in streams.tensors()}
        for slot, name, of in streams.tensors():
            ensure(
                slot[name].dim() == len(of.split()),
                f"the state {name!r} has {slot[name].dim()} axes, `states` says {of!r}",
            )
    for name, of in axes.items():
        grows = sizes[1][name] > sizes[0][name]
        ensure(not grows or kind(of) != "fixed", f"the state {name!r} grows, but its axes {of!r} are fixed")
        ensure(grows or kind(of) != "growing", f"the state {name!r} does not grow, but its axes are {of!r}")


def pieces_padded_on_either_side_equal_each_sequence_alone(case: Case) -> None:
    block, x, streams = case.built(), drawn(14, batch=3), Streams()
    rows = torch.tensor([[1] * 5 + [0], [0] * 3 + [1] * 3, [1] * 6]).bool()
    later = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]).bool()
    outs, start = [], 0
    for padding in (rows, later, None, None):
        length = 2 if padding is None else padding.shape[1]
        piece = x[:, start : start + length]
        outs.append(block(piece, context(piece, streams=streams, padding=padding)))
        streams.leave(length, padding)
        start += length
    found, real = torch.cat(outs, dim=1), torch.cat([rows, later, torch.ones(3, 4, dtype=torch.bool)], dim=1)
    for b in range(3):
        alone = x[b : b + 1, real[b]]
        there = context(alone, memory=context(x).read("memory")[b : b + 1])
        segments = (torch.arange(alone.shape[1]) // 4 % 2)[None]
        there.write("segments", segments, "B T")
        near(found[b : b + 1, real[b]], block(alone, there), 1e-9, "padded pieces differ from the sequence alone")


def beam_search_may_reorder_the_batch_of_the_state(case: Case) -> None:
    block, x, index = case.built(), drawn(9, batch=3), torch.tensor([2, 0, 0])
    _, streams = stream(block, x[:, :6], [4, 2])
    streams.reorder(index)
    # The memory is that of each beam's own sequence, which the state keeps: the context's is no longer asked.
    found, _ = stream(block, x[index, 6:], [1, 2], streams)
    near(found, block(x, context(x))[index, 6:], 1e-9, "after the batch was reordered, outputs differ")


def reads_in_pieces_in_mixed_precision(case: Case) -> None:
    block, x = case.built(torch.float32), drawn(70, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        whole, (streamed, _) = block(x, context(x)), stream(block, x, [5, 1, 64])
    error, most = (streamed - whole).abs().max(), 8 * 2**-8 * whole.abs().max()
    ensure(error <= most, f"{DIFFERS.format([5, 1, 64])} by {error:.3g}, more than {most:.3g}")


def _streams(case: Case) -> bool:
    return case.streams


def _block_streams(case: Case) -> bool:
    return case.streams and case.kind.role == "block"


CHECKS = (
    Check(reading_in_pieces_equals_reading_at_once, _streams),
    Check(reading_in_pieces_equals_reading_at_once_with_every_position, _block_streams),
    Check(trains_in_pieces_whose_gradients_end_at_what_was_read_before, _streams),
    Check(state_takes_the_bytes_that_were_declared, _streams),
    Check(state_grows_as_its_axes_say, _streams),
    Check(pieces_padded_on_either_side_equal_each_sequence_alone, _streams),
    Check(beam_search_may_reorder_the_batch_of_the_state, _streams),
    Check(reads_in_pieces_in_mixed_precision, _streams),
)
